"""Which of the devices that OpenCL's drivers list are taken."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cubepy.errors import DeviceError
from cubepy.runtimes.opencl import platform

POCL = "OpenCL 3.0 PoCL HSTR: pthread-"
UNABLE = POCL + "x86_64-unknown-linux-gnu-generic"
"""What PoCL 3.0 (LLVM 14) calls a Zen 5, for which it builds no program."""
ABLE = [
    POCL + "x86_64-pc-linux-gnu-znver3",
    POCL + "aarch64-unknown-linux-gnu-generic",
    "OpenCL 3.0 CUDA",
    "OpenCL 3.0 (Build 0) generic",
]


class Refused(Exception):
    """An error of the bindings."""


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Devices that the only driver lists."""
    found: list[Any] = []
    driver = SimpleNamespace(get_devices=lambda: found)
    flags = SimpleNamespace(COARSE_GRAIN_BUFFER=1)
    cl = SimpleNamespace(get_platforms=lambda: [driver], device_svm_capabilities=flags)
    cl.Error = cl.LogicError = Refused
    monkeypatch.setattr(platform, "api", lambda: cl)
    platform.found_devices.cache_clear()
    yield found
    platform.found_devices.cache_clear()


def device(version: str, svm: int = 1) -> Any:
    return SimpleNamespace(version=version, svm_capabilities=svm)


def test_devices_that_build_no_program_are_left_out(listed: list[Any]):
    listed.extend(device(version) for version in (UNABLE, *ABLE))
    listed.append(device("OpenCL 1.2", svm=0))
    assert [d.version for d in platform.found_devices()] == ABLE


def test_a_driver_older_than_the_cpu_is_named(listed: list[Any]):
    listed.append(device(UNABLE))
    with pytest.raises(DeviceError, match=r"E507.*a PoCL that recognises this CPU(?s:.*)newer"):
        platform.found_devices()


def test_no_device_at_all(listed: list[Any]):
    assert platform.found_devices() == ()
