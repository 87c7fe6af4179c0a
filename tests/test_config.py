"""What settings take from the environment."""

import pytest

from cubepy import config
from cubepy.errors import Error


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment has been read."""
    monkeypatch.setattr(config, "_read", {})


@pytest.mark.parametrize("row", config.TABLE, ids=lambda row: row.name)
def test_an_empty_variable_is_none(row: config.Setting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(row.variable, "")
    assert config.get(row.name) == row.default
    assert config.source(row.name) == "default"


def test_a_variable_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBEPY_OPT_LEVEL", "1")
    assert config.get("opt_level") == 1
    assert config.source("opt_level") == "environment"


@pytest.mark.parametrize("text", ["ir", "llvm, asm,remarks", "passes,after:fold", "source"])
def test_stages_to_print(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBEPY_DUMP", text)
    assert config.get("dump") == tuple(word.strip() for word in text.split(","))


def test_a_stage_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUBEPY_DUMP", "ir,lvm")
    with pytest.raises(Error, match=r"E506.*no stage `lvm`; stages: ir, llvm, asm"):
        config.get("dump")
    with pytest.raises(Error, match="no stage `lvm`"), config.settings(dump=("lvm",)):
        pass
