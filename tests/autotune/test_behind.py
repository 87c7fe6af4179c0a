"""Candidates that are compiled behind calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cubepy.autotune import behind
from cubepy.autotune.ahead import Ready


class Compiling:
    """Compiles what it is asked for at once, and cannot be closed."""

    def next(self, wanted: Sequence[int], until: float) -> Ready | None:
        return Ready(wanted[0], is_made=True)

    def close(self) -> None:
        raise OSError("no")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_was_compiled_is_raced_whatever_closing_does():
    behind.compile_behind("name", Compiling(), [0, 2], ["a", "b", "c"], 1.0)
    assert behind.wait(60.0)
    rest = behind.rest_of("name")
    behind.forget("name")
    assert rest is not None and rest.is_done and rest.compiled == ["a", "c"]
