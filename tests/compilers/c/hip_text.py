"""Compiles HIP for an architecture with clang alone, against `hip_shim.h`; nothing runs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

SHIM = Path(__file__).with_name("hip_shim.h")
FLAGS = (
    *("-x", "hip", "-std=c++17", "-O3", "--cuda-device-only", "-nogpulib", "-nogpuinc"),
    *("--no-gpu-bundle-output", "-c", "-fgpu-rdc", "-w"),
)


@lru_cache(maxsize=1)
def find_clang() -> str:
    """A clang that knows gfx942; the test is skipped without."""
    for version in (20, 19, 18):
        found = shutil.which(f"clang++-{version}")
        if found is not None:
            return found
    pytest.skip("package absent: clang 18 or newer for HIP (apt-get install clang-19)")


def optimised(source: str, arch: str) -> str:
    """The LLVM IR of a kernel's text; calls of mathematics stay open."""
    with tempfile.TemporaryDirectory(prefix="cubepy-hip-") as folder:
        file, out = Path(folder) / "kernel.hip", Path(folder) / "kernel.ll"
        file.write_text(source)
        command = [find_clang(), *FLAGS, f"--offload-arch={arch}", "-include", str(SHIM)]
        _run([*command, "-emit-llvm", "-S", "-o", str(out), str(file)], source)
        return out.read_text()


def build(source: str, arch: str) -> bytes:
    """The object of a kernel's text."""
    with tempfile.TemporaryDirectory(prefix="cubepy-hip-") as folder:
        file, out = Path(folder) / "kernel.ll", Path(folder) / "kernel.o"
        file.write_text(optimised(source, arch))
        lower = [find_clang(), "-x", "ir", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-O3"]
        _run([*lower, "-nogpulib", "-c", str(file), "-o", str(out)], source)
        return out.read_bytes()


def _run(command: list[str], source: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr[:3000]}\n{source}"
