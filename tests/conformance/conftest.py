"""The devices that the conformance suite runs on; a device joins with a line here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from functools import cache
from typing import Any

import pytest

import cubepy as cp
from cubepy.ir.types import DType, f64
from tests.compilers.c import text_devices
from tests.conformance.must_pass import device_of, list_of, name_of, read_list, write_list

TEXTS = tuple(text_devices.DEVICES)
"""The text of C dialects, run on this CPU: OpenCL by PoCL and by Oclgrind, Metal as C++."""
DEVICES = ["cpu", "interpreter", "cuda:0", "opencl:0", *TEXTS]
SLOW = {"interpreter", "opencl:0", "oclgrind"}
"""Devices that run fewer widths and elements: Intel's compiler takes a minute for long kernels."""
LACKS: dict[str, set[DType]] = {"metal_text": {f64}}
"""Types that a device has not; that they are refused is tested with its compiler."""
LONGEST = {"pocl": 16, "opencl:0": 4}
"""The longest line for a device: PoCL keeps those of a whole cube on one stack of 8 MiB."""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_text_device: Any) -> Any:
    """The name of each device of this machine."""
    if request.param in TEXTS:
        require_text_device(request.param)
    elif not is_here(request.param):
        pytest.skip(f"no device {request.param} here")
    return request.param


@cache
def is_here(device: str) -> bool:
    """Whether this machine has the device."""
    if device not in TEXTS:
        found = next((d for d in cp.devices() if d.name == device), None)
        return found is not None and "Portable" not in found.properties.name  # that is `pocl`
    try:
        text_devices.require(device)
    except (pytest.skip.Exception, pytest.fail.Exception):
        return False
    return True


@pytest.fixture
def is_slow(device: str) -> bool:
    """Whether this device is to be spared large inputs."""
    return device in SLOW


@pytest.fixture
def is_text(device: str) -> bool:
    """Whether a compiler of C takes long for each width, though all types spell a width alike."""
    return device in TEXTS or device.startswith("opencl")


@pytest.fixture
def longest(device: str) -> int:
    """The width of the longest line that the device is tried with."""
    return LONGEST.get(device, 64)


@pytest.fixture
def lacks(device: str) -> set[DType]:
    """The scalar types that the device has not."""
    return LACKS.get(device, set())


_passed: dict[str, set[str]] = defaultdict(set)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that must pass on a device that is here may not be skipped."""
    report = yield
    device = device_of(item)
    if device is None or not is_here(device):
        return report
    name = name_of(item.nodeid, device)
    if report.passed and report.when == "call":
        _passed[device].add(name)
    if report.skipped and not item.config.getoption("--bless") and name in read_list(device):
        report.outcome = "failed"
        report.longrepr = f"{name} is skipped, but {list_of(device).name} says that it must pass"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--bless") and not session.testsfailed:
        if hasattr(session.config, "workerinput"):
            raise pytest.UsageError("--bless of the lists needs -n 0: a worker sees few tests")
        for device, names in _passed.items():
            write_list(device, names)
