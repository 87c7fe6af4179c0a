"""Runs Metal text on the CPU: compiled as C++ against `metal_shim.h`, a fibre for each unit.

The text is rewritten only where C++ has no such syntax: the include, `threadgroup` variables, which
become static ones, and a launcher behind it.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

SHIM = Path(__file__).with_name("metal_shim.h")
FLAGS = (
    *("-std=c++17", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-Xclang", "-ffloat16-excess-precision=none"),
    *("-Wno-unknown-attributes", "-Wno-unknown-pragmas"),
    *("-Wno-user-defined-literals", "-Wno-reserved-user-defined-literal"),
)
_POSITIONS = {"unit_position": "at", "cube_position": "cube", "cube_counts": "counts"}
_MEETS = re.compile(r"\b(threadgroup_barrier|simdgroup_barrier|simd(?:group)?_\w+)\(")


@lru_cache(maxsize=1)
def find_clang() -> str:
    """A clang that knows `_Float16` well; the test is skipped without."""
    for version in (19, 18, 17, 16):
        found = shutil.which(f"clang++-{version}")
        if found is not None:
            return found
    pytest.skip("package absent: clang 16 or newer (apt-get install clang-16)")


@lru_cache(maxsize=1)
def _runtime() -> str:
    """The archive of what clang calls for conversions of half-precision numbers."""
    command = [find_clang(), "--print-libgcc-file-name"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@lru_cache(maxsize=2)
def _shim(level: str) -> Path:
    """The shim, compiled once for a level: `-include` finds the compiled form beside it."""
    folder = tempfile.TemporaryDirectory(prefix="cubepy-metal-")
    header = Path(folder.name) / "metal_shim.h"
    header.write_text(SHIM.read_text())
    command = [find_clang(), level, *FLAGS, "-x", "c++-header", str(header)]
    subprocess.run([*command, "-o", f"{header}.pch"], check=True)
    _FOLDERS.append(folder)
    return header


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""They live as long as the process."""


def as_cpp(source: str, entry: str, name: str = "launch") -> str:
    """The text in a namespace, without the include of Metal's library, and a launcher behind it."""
    space = f"program_{name}"
    text = source.replace("#include <metal_stdlib>", f"namespace {space} {{", 1)
    text = text.replace("alignas(16) threadgroup ", "alignas(16) static ")
    head = text[text.index(f"kernel void {entry}(") :]
    params = re.findall(r"(\w+) \[\[(\w+)(?:\((\d+)\))?\]\]", head[: head.index(") {")])
    passed = [_passed(param, kind, slot, head) for param, kind, slot in params]
    call = f"{entry}({', '.join(passed)});"
    return text + LAUNCHER.format(name=name, call=call, meets=int(bool(_MEETS.search(source))))


def _passed(name: str, kind: str, slot: str, head: str) -> str:
    if kind != "buffer":
        return _POSITIONS[name]
    declaration = re.search(rf"([^,(]*?)\s*\b{name} \[\[buffer\({slot}\)\]\]", head)
    assert declaration is not None
    word = declaration[1].strip()
    if word.endswith("&"):
        return f"*({word[:-1].removeprefix('constant ')}*)arguments[{slot}]"
    return f"({word.removeprefix('device ')})arguments[{slot}]"


LAUNCHER = """
static void run_unit(void** arguments, uint3 at, uint3 cube, uint3 counts) {{
    {call}
}}
extern "C" int {name}(void** arguments, const uint* grid, const uint* dim) {{
    const uint3 counts = {{grid[0], grid[1], grid[2]}}, dims = {{dim[0], dim[1], dim[2]}};
    for (uint z = 0; z < counts.z; ++z)
        for (uint y = 0; y < counts.y; ++y)
            for (uint x = 0; x < counts.x; ++x)
                if (!metal::run_cube<{meets}>(run_unit, arguments, uint3{{x, y, z}}, counts, dims))
                    return 1;
    return 0;
}}
}}
"""


def build(*programs: str, level: str = "-O1") -> Any:
    """The library of one or more programs; see `as_cpp`. Optimising takes half of the time.

    The linker is called here, because clang starts itself again for it. It finds no library of C++.
    """
    text = "\n".join(programs)
    with tempfile.TemporaryDirectory(prefix="cubepy-metal-") as folder:
        file, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        file.write_text(text)
        made = file.with_suffix(".o")
        compile = [find_clang(), level, *FLAGS, "-c", "-include", str(_shim(level)), str(file)]
        _run([*compile, "-o", str(made)], text)
        _run(["ld", "-shared", str(made), _runtime(), "-o", str(library)], text)
        return ctypes.CDLL(str(library))


def _run(command: list[str], text: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"


def launch(function: Any, pointers: list[int], grid: Any, dim: Any) -> None:
    """Run all cubes, one after the other; barriers that only some units reach are an error."""
    triple = ctypes.c_uint * 3
    words = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
    status = function(words, triple(*grid), triple(*dim))
    assert status == 0, "the units of a cube wait for each other at different places"
