"""The devices that the conformance suite runs on; a device joins with a line here."""

from __future__ import annotations

from typing import Any

import pytest

import cubepy as cp
from cubepy.ir.types import DType, f64
from tests.compilers.c import text_devices

TEXTS = tuple(text_devices.DEVICES)
"""The text of C dialects, run on this CPU: OpenCL by PoCL, Metal as C++."""
DEVICES = ["cpu", "interpreter", "cuda:0", *TEXTS]
SLOW = {"interpreter"}
"""Devices that run fewer widths and elements."""
LACKS: dict[str, set[DType]] = {"metal_text": {f64}}
"""Types that a device has not; that they are refused is tested with its compiler."""
LONGEST = {"pocl": 16}
"""The longest line for a device: PoCL keeps those of a whole cube on one stack of 8 MiB."""


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_text_device: Any) -> Any:
    """The name of each device of this machine."""
    if request.param in TEXTS:
        require_text_device(request.param)
    elif request.param not in [d.name for d in cp.devices()]:
        pytest.skip(f"no device {request.param} here")
    return request.param


@pytest.fixture
def is_slow(device: str) -> bool:
    """Whether this device is to be spared large inputs."""
    return device in SLOW


@pytest.fixture
def longest(device: str) -> int:
    """The width of the longest line that the device is tried with."""
    return LONGEST.get(device, 64)


@pytest.fixture
def lacks(device: str) -> set[DType]:
    """The scalar types that the device has not."""
    return LACKS.get(device, set())
