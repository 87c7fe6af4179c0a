"""The devices that the conformance suite runs on; a device joins with a line here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

import cubepy as cp
from tests.conformance.must_pass import device_of, list_of, name_of, read_list, write_list

DEVICES = ["cpu", "interpreter"]
SLOW = {"interpreter"}
"""Devices that run fewer widths and elements."""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """The name of each device of this machine."""
    if not is_here(request.param):
        pytest.skip(f"no device {request.param} here")
    return request.param


def is_here(device: str) -> bool:
    """Whether this machine has the device."""
    return device in [d.name for d in cp.devices()]


@pytest.fixture
def is_slow(device: str) -> bool:
    """Whether this device is to be spared large inputs."""
    return device in SLOW


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
        for device, names in _passed.items():
            write_list(device, names)
