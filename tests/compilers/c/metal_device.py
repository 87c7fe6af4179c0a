"""Runs Metal text on the CPU: compiled as C++ against `metal_shim.h`, a thread for each unit."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubepy.artifact import FAULT_WORDS
from tests.compilers.c.launching import Launch, prepare

SHIM = Path(__file__).with_name("metal_shim.h")
FLAGS = (
    *("-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-ffp-contract=off"),
    *(
        "-Xclang",
        "-ffloat16-excess-precision=none",
        "-Wno-unknown-attributes",
        "-Wno-unknown-pragmas",
    ),
    *("-Wno-user-defined-literals", "-Wno-reserved-user-defined-literal"),
)
_POSITIONS = {"unit_position": "at", "cube_position": "cube", "cube_counts": "counts"}


def find_clang() -> str:
    """A clang that knows `_Float16` well; the test is skipped without."""
    for version in (19, 18, 17, 16):
        found = shutil.which(f"clang++-{version}")
        if found is not None:
            return found
    pytest.skip("no clang 16 or newer")


def as_cpp(source: str, entry: str) -> str:
    """The text with the shim instead of Metal's library, and a launcher behind it."""
    text = source.replace("#include <metal_stdlib>", f'#include "{SHIM}"\nnamespace program {{')
    text = text.replace("alignas(16) threadgroup ", "alignas(16) static ")
    head = text[text.index(f"kernel void {entry}(") :]
    params = re.findall(r"(\w+) \[\[(\w+)(?:\((\d+)\))?\]\]", head[: head.index(") {")])
    passed = [_passed(name, kind, slot, head) for name, kind, slot in params]
    return text + LAUNCHER.format(call=f"program::{entry}({', '.join(passed)});")


def _passed(name: str, kind: str, slot: str, head: str) -> str:
    if kind != "buffer":
        return _POSITIONS[name]
    declaration = re.search(rf"([^,(]*?)\s*\b{name} \[\[buffer\({slot}\)\]\]", head)
    assert declaration is not None
    word = declaration[1].strip()
    if word.endswith("&"):
        return f"*(program::{word[:-1].removeprefix('constant ')}*)arguments[{slot}]"
    return f"({word.removeprefix('device ')})arguments[{slot}]"


LAUNCHER = """
}} using namespace metal;
thread_local metal::Unit metal::unit;
static void run_unit(void** arguments, uint3 at, uint3 cube, uint3 counts) {{
    {call}
}}
extern "C" void launch(void** arguments, const uint* grid, const uint* dim) {{
    const uint3 counts = {{grid[0], grid[1], grid[2]}}, dims = {{dim[0], dim[1], dim[2]}};
    for (uint z = 0; z < counts.z; ++z)
        for (uint y = 0; y < counts.y; ++y)
            for (uint x = 0; x < counts.x; ++x)
                metal::run_cube(run_unit, arguments, uint3{{x, y, z}}, counts, dims);
}}
"""


def build(source: str, entry: str) -> Any:
    """The library of a kernel's text."""
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        file.write_text(as_cpp(source, entry))
        command = [find_clang(), *FLAGS, "-o", str(library), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(library))


def run(launcher: Any, **arguments: Any) -> list[int]:
    """Launch on arrays, which are changed in place; gives the words of the fault record."""
    return launch(prepare(launcher, "metal", arguments))


def launch(made: Launch) -> list[int]:
    """Buffers in order, then all numbers with eight bytes each, then the fault record."""
    arrays = [slot for slot in made.slots if isinstance(slot, np.ndarray)]
    numbers = b"".join(
        np.asarray(s).tobytes().ljust(8, b"\0") for s in made.slots if not isinstance(s, np.ndarray)
    )
    faults = np.zeros(FAULT_WORDS, np.uint64)
    block = ctypes.create_string_buffer(numbers, max(len(numbers), 1))
    pointers = [a.ctypes.data for a in arrays]
    if numbers:
        pointers.append(ctypes.addressof(block))
    pointers.append(faults.ctypes.data)
    library = build(made.artifact.code.decode(), made.artifact.entry)
    triple = ctypes.c_uint * 3
    library.launch(
        (ctypes.c_void_p * len(pointers))(*pointers),
        triple(*made.grid),
        triple(*made.artifact.cube_dim),
    )
    return faults.tolist()
