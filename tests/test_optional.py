"""CI promises optional packages; these tests are what fails when one of them is missing there."""

import tomllib
from pathlib import Path

import pytest

from tests.optional import absent_package, require_package

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.optional("torch")
def test_torch_is_the_pinned_version():
    torch = require_package("torch")
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert extras["torch"] == [f"torch=={torch.__version__.split('+')[0]}"]


@pytest.mark.optional("numba", "skimage", "PIL", "matplotlib")
def test_the_other_optional_packages_are_here():
    pass


def test_absent_package_is_skipped_by_name(monkeypatch):
    monkeypatch.delenv("CUBEPY_REQUIRE_OPTIONAL", raising=False)
    with pytest.raises(pytest.skip.Exception) as skipped:
        require_package("no_such_package")
    assert absent_package(str(skipped.value)) == "no_such_package"


def test_absent_package_fails_where_optional_packages_are_required(monkeypatch):
    monkeypatch.setenv("CUBEPY_REQUIRE_OPTIONAL", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_package"):
        require_package("no_such_package")
