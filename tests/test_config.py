"""What settings take from the environment."""

import pytest

from cubepy import config


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
