"""The lists of tests that must pass agree with the tests that there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import DEVICES, LACKS
from tests.conformance.must_pass import list_of, name_of, read_list

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def collected() -> list[str]:
    """All tests of this folder."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", str(HERE)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("listed", DEVICES)
def test_listed_tests_exist(listed: str, collected: list[str], bless: bool):
    if bless:
        pytest.skip("the lists are being written")
    of_device = (t for t in collected if listed in t.partition("[")[2].rstrip("]").split("-"))
    there = {name_of(t, listed) for t in of_device if "listed" not in t.partition("[")[0]}
    assert len(there) > 100
    gone = read_list(listed) - there
    assert not gone, f"{list_of(listed).name} lists tests that are gone: {sorted(gone)[:5]}"


@pytest.mark.parametrize("listed", DEVICES)
def test_most_tests_are_listed(listed: str, collected: list[str], bless: bool):
    if bless:
        pytest.skip("the lists are being written")
    of_device = {t for t in collected if listed in t.partition("[")[2].rstrip("]").split("-")}
    least = 0.7 if listed in LACKS else 0.9
    assert len(read_list(listed)) > least * len(of_device), "run pytest tests/conformance --bless"


def test_a_listed_test_that_is_skipped_fails(tmp_path: Path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    suite = _suite(tmp_path, "pytest.skip('nothing to see')")
    skipped = subprocess.run([*command, str(suite)], cwd=ROOT, capture_output=True, text=True)
    assert skipped.returncode == 1, skipped.stdout
    assert "test_it is skipped, but cpu.txt says that it must pass" in skipped.stdout
    suite = _suite(tmp_path, "pass")
    passed = subprocess.run([*command, str(suite)], cwd=ROOT, capture_output=True, text=True)
    assert passed.returncode == 0, passed.stdout


def _suite(folder: Path, body: str) -> Path:
    """A suite of one test on the CPU with its list, and this folder's hooks."""
    (folder / "conftest.py").write_text(_HOOKS)
    (folder / "test_one.py").write_text(_TEST.format(body=body))
    (folder / "must_pass").mkdir(exist_ok=True)
    (folder / "must_pass" / "cpu.txt").write_text("test_one.py::test_it\n")
    return folder


_HOOKS = """
import sys
from pathlib import Path
from tests.conformance import must_pass
must_pass.FOLDER = Path(__file__).parent / "must_pass"
from tests.conformance.conftest import *
from tests.conformance.conftest import pytest_runtest_makereport

def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true")
"""
_TEST = """
import pytest

@pytest.mark.parametrize("device", ["cpu"])
def test_it(device):
    {body}
"""


def test_names_have_no_device():
    cases: dict[tuple[str, str], Any] = {
        ("tests/conformance/test_x.py::test_y[cpu-f32-1]", "cpu"): "test_x.py::test_y[f32-1]",
        ("tests/conformance/test_x.py::test_y[f32-1-cpu]", "cpu"): "test_x.py::test_y[f32-1]",
        ("tests/conformance/test_x.py::test_y[cpu]", "cpu"): "test_x.py::test_y",
    }
    for (nodeid, device), name in cases.items():
        assert name_of(nodeid, device) == name
