"""Candidates that are compiled behind calls."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import pytest

from cubepy.autotune import behind
from cubepy.autotune.ahead import Ready


class Compiling:
    """Compiles what it is asked for at once, and cannot be closed."""

    def next(self, wanted: Sequence[int], until: float) -> Ready | None:
        return Ready(wanted[0], is_made=True)

    def close(self) -> None:
        raise OSError("no")


def test_what_was_compiled_is_raced_whatever_closing_does():
    rest = behind.Rest(1.0, [])
    with pytest.raises(OSError, match="no"):
        behind._work(rest, Compiling(), [0, 2], ["a", "b", "c"])
    assert rest.is_done and rest.compiled == ["a", "c"]


def test_nothing_is_compiled_behind_where_no_thread_is_to_be_had(monkeypatch: pytest.MonkeyPatch):
    """What compiles is closed, and nobody waits for it."""
    closed: list[bool] = []

    def refuse(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    monkeypatch.setattr(Compiling, "close", lambda compiling: closed.append(True))
    with pytest.warns(RuntimeWarning, match="no thread is to be had"):
        behind.compile_behind("name", Compiling(), [0, 2], ["a", "b", "c"], 1.0)
    rest = behind.rest_of("name")
    behind.forget("name")
    assert closed and rest == behind.Rest(1.0, [], True)
