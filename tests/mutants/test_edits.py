"""Each edit of the mutants applies: its text stands once in the module, and changes it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.edits import EDITS, Edit


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_applies(edit: Edit) -> None:
    spec = find_spec(edit.module)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).read_text().count(edit.old) == 1
    assert edit.new != edit.old
