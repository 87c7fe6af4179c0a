"""CI promises guests; these tests are what fails when one of them is missing there."""

import tomllib
from pathlib import Path

import pytest

from tests.guests import absent_guest, require_guest

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.guest("torch")
def test_torch_is_the_pinned_version():
    torch = require_guest("torch")
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras["torch"] == [f"torch=={torch.__version__.split('+')[0]}"]


@pytest.mark.guest("numba", "skimage", "PIL", "matplotlib")
def test_the_other_guests_are_here():
    pass


def test_absent_guest_is_skipped_by_name(monkeypatch):
    monkeypatch.delenv("CUBEPY_REQUIRE_GUESTS", raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        require_guest("no_such_guest")
    assert absent_guest(str(skipped.value)) == "no_such_guest"


def test_absent_guest_fails_where_guests_are_required(monkeypatch):
    monkeypatch.setenv("CUBEPY_REQUIRE_GUESTS", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_guest"):
        require_guest("no_such_guest")
