"""Devices with memory of their own; what is not here is skipped by name."""

from __future__ import annotations

import pytest

import cubepy as cp


@pytest.fixture(params=["opencl:0", "cuda:0"])
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device with its own memory."""
    return require(request.param)


@pytest.fixture
def cuda() -> str:
    """The first GPU of NVIDIA."""
    return require("cuda:0")


def require(name: str) -> str:
    """The name, if there is such a device; else the test is skipped."""
    if name not in [d.name for d in cp.devices()]:
        pytest.skip(f"no device {name} here")
    return name
