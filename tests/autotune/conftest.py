"""A store of its own for each test, and no warning that another test used up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cubepy as cp
from cubepy.autotune import records


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the settings in force, in which measurements are kept."""
    monkeypatch.setattr(records, "_warnings", [True])
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path
