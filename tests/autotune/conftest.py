"""A store of its own for each test, and no warning that another test used up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cubepy as cp
from cubepy.autotune import database, records


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the settings in force, in which measurements are kept."""
    monkeypatch.setattr(database, "_warnings", [True])
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def leaves_no_children() -> Iterator[None]:
    """No process that the test started is left; those of tests before it may live on."""
    before = children()
    yield
    assert children() <= before


def children() -> set[int]:
    """The processes that this one started, and that nobody has waited for."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # a thread that ended
            found |= {int(n) for n in (task / "children").read_text().split()}
    return found
