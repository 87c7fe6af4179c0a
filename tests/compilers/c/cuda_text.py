"""Runs CUDA C and HIP text of one unit as C++, compiled by clang against `cuda_shim.h`."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.compilers.cstyle.compiler import Source
from cubepy.compilers.cstyle.nvidia import DISGUISES
from cubepy.compilers.cuda.dialect import WAIT
from cubepy.ir.core import Kernel
from tests.compilers.c.metal_text import find_clang

SHIM = Path(__file__).with_name("cuda_shim.h")
FLAGS = (
    *("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    "-w",
)


def build(made: list[tuple[int, Kernel, Source]]) -> list[Any]:
    """A function for each program, that takes buffers in order."""
    texts = [f"namespace n{seed} {{\n{_plain(source.text)}\n}}" for seed, _, source in made]
    with tempfile.TemporaryDirectory(prefix="cubepy-cuda-") as folder:
        file, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        file.write_text("\n".join(texts))
        command = [find_clang(), *FLAGS, "-include", str(SHIM), "-o", str(library), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:3000]
        loaded = ctypes.CDLL(str(library))
    return [_run(getattr(loaded, source.entry)) for _, _, source in made]


def _plain(text: str) -> str:
    """Without the assembly of NVIDIA."""
    for found in DISGUISES:
        plain = "~value + 1ull" if "negation" in found.name else "value"
        text = text.replace(found.statement, f"result = {plain};")
    return text.replace(WAIT, "")


def _run(function: Any) -> Any:
    def run(buffers: list[np.ndarray], numbers: list[int]) -> None:
        assert not numbers
        function(*(ctypes.c_void_p(b.ctypes.data) for b in buffers))

    return run
