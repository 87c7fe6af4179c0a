"""The generated source of representative kernels, as committed; `--bless` rewrites it.

What is committed also compiles: CUDA C by NVRTC for four architectures, OpenCL C by PoCL, Metal as
C++ and HIP by clang.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cubepy.compilers.cuda import toolchain
from cubepy.targets import parse_target
from tests.compilers.c import hip_text, metal_text, text_devices
from tests.golden.kernels import CASES
from tests.optional import require_package

FOLDER = Path(__file__).parent
TARGETS = {"cu": "cuda:sm_90a", "cl": "opencl", "metal": "metal", "hip": "hip:gfx942"}
ARCHITECTURES = ("sm_75", "sm_80", "sm_90a", "sm_100a")


def text_for(name: str, target: str) -> str:
    launcher, specs = CASES[name]
    return launcher.inspect(*specs, target=target)


@pytest.mark.parametrize("suffix", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_text(name: str, suffix: str, bless: bool):
    path = FOLDER / f"{name}.{suffix}"
    found = text_for(name, TARGETS[suffix])
    if bless:
        path.write_text(found)
    assert found == path.read_text(), "run pytest with --bless, and read the diff"


def test_every_file_has_its_kernel():
    files = {path.name for path in FOLDER.iterdir() if path.suffix[1:] in TARGETS}
    assert files == {f"{name}.{suffix}" for name in CASES for suffix in TARGETS}


@pytest.mark.parametrize("suffix", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_shape(name: str, suffix: str):
    """Lines fit the page, and every Python line that made something is named."""
    text = (FOLDER / f"{name}.{suffix}").read_text()
    assert all(len(line) <= 100 for line in text.splitlines() if "asm" not in line)
    assert "// kernels.py:" in text and "goto" not in text


GLOBAL = re.compile(r"\b(LDG|STG|LD|ST|RED|REDG|ATOM|ATOMG|LDGSTS|CCTL|U\w*LDG|U\w*STG|UBLK\w+)\b")
"""What reads or writes memory that other kernels see, in machine code."""


@pytest.mark.parametrize("name", CASES)
def test_launches_that_overlap_wait_first(name: str):
    """Before anything that kernels before may have written is read, or what they read is written;
    ptxas and NVVM move loads up, but not across the wait."""
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None or toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    for arch in ("sm_90a", "sm_100a"):
        target = parse_target(f"cuda:{arch}")
        sass = toolchain.to_sass(text_for(name, str(target)), target)
        before, waits, behind = sass.partition("ACQBULK")
        assert waits and not GLOBAL.search(before) and GLOBAL.search(behind), sass


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", CASES)
def test_nvrtc_takes_it(name: str, arch: str):
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    target = f"cuda:{arch}"
    source = text_for(name, target)
    if arch in TARGETS["cu"]:
        assert source == (FOLDER / f"{name}.cu").read_text()
    assert toolchain.to_cubin(source, parse_target(target)).startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("name", CASES)
def test_clang_takes_the_hip(name: str, arch: str):
    source = text_for(name, f"hip:{arch}")
    if arch in TARGETS["hip"]:
        assert source == (FOLDER / f"{name}.hip").read_text()
    assert hip_text.build(source, arch).startswith(b"\x7fELF")


@pytest.mark.parametrize("name", CASES)
def test_pocl_takes_it(name: str, require_text_device: Any):
    require_text_device("pocl")
    import pyopencl as cl

    source = (FOLDER / f"{name}.cl").read_text()
    program = cl.Program(text_devices.pocl_queue().context, source)
    built = program.build(options=["-cl-std=CL1.2", "-w"])
    assert len(built.all_kernels()) == 1


@pytest.mark.parametrize("name", CASES)
def test_clang_takes_the_metal(name: str, require_text_device: Any):
    require_text_device("metal_text")
    source = (FOLDER / f"{name}.metal").read_text()
    entry = re.search(r"kernel void (\w+)", source)
    assert entry and metal_text.build(metal_text.as_cpp(source, entry[1])).launch
