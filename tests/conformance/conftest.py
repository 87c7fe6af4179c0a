"""The devices that the conformance suite runs on; a device joins with a line here."""

from __future__ import annotations

from typing import Any

import pytest

import cubepy as cp

DEVICES = ["cpu", "interpreter", "opencl:0", "cuda:0"]
SLOW = {"interpreter"}
"""Devices that run fewer widths and elements."""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """The name of each device of this machine."""
    if request.param not in [d.name for d in cp.devices()]:
        pytest.skip(f"no device {request.param} here")
    return request.param


@pytest.fixture
def is_slow(device: str) -> bool:
    """Whether this device is to be spared large inputs."""
    return device in SLOW
