"""Devices with memory of their own; what is not here is skipped by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from tests.compilers.c import metal_text
from tests.devices import fake_cuda, fake_metal
from tests.optional import require_package


@pytest.fixture(params=["opencl:0", "cuda:0", "metal:0"])
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device with its own memory; Metal's is made up where there is none."""
    if request.param == "metal:0" and sys.platform != "darwin":
        request.getfixturevalue("fake")
    return require(request.param)


@pytest.fixture
def fake() -> Iterator[fake_metal.Metal]:
    """Metal's objects in Python, whose kernels run on this CPU."""
    metal_text.find_clang()
    with fake_metal.installed() as found:
        yield found


@pytest.fixture
def driver() -> Iterator[fake_cuda.Driver]:
    """The memory and the streams of NVIDIA's driver in Python; they are `cuda:0`."""
    with fake_cuda.installed() as found:
        yield found


@pytest.fixture
def nvrtc() -> None:
    """NVIDIA's compiler, which needs no driver."""
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")


@pytest.fixture
def cuda() -> str:
    """The first GPU of NVIDIA."""
    return require("cuda:0")


@pytest.fixture
def hopper(cuda: str) -> str:
    """A GPU with `wgmma`."""
    if cp.device(cuda).target.arch != "sm_90a":
        pytest.skip("no Hopper GPU here")
    return cuda


def require(name: str) -> str:
    """The name, if there is such a device; else the test is skipped."""
    try:
        cp.device(name)  # no other driver is opened, which might change the context of a thread
    except cp.DeviceError:
        pytest.skip(f"no device {name} here", allow_module_level=True)
    return name
