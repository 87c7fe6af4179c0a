"""Checks Metal text without a Mac: by `metal_check.h` and clang what C++ knows, by rules the rest.

It cannot see limits of a GPU, nor overloads of Metal's library that the header leaves out.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.compilers.c.metal_text import find_clang

HEADER = Path(__file__).with_name("metal_check.h")
FLAGS = (
    *("-x", "c++", "-std=c++14", "-fsyntax-only", "-nostdinc", "-nostdinc++"),
    *("-fno-exceptions", "-fno-rtti", "-ferror-limit=5", "-Werror=return-type"),
    *("-Werror=uninitialized", "-Wno-unknown-attributes", "-Wno-unknown-pragmas"),
    *("-Wno-user-defined-literals", "-Wno-reserved-user-defined-literal", "-Wno-c++17-extensions"),
    *("-Wno-undefined-inline", "-Wno-undefined-internal", "-Wno-missing-declarations"),
)
MOST_BUFFERS = 31
_POSITIONS = {
    "thread_position_in_grid": 3,
    "thread_position_in_threadgroup": 3,
    "threadgroup_position_in_grid": 3,
    "threadgroups_per_grid": 3,
    "threads_per_threadgroup": 3,
    "threads_per_grid": 3,
    "thread_index_in_threadgroup": 1,
    "thread_index_in_simdgroup": 1,
    "simdgroup_index_in_threadgroup": 1,
    "threads_per_simdgroup": 1,
    "simdgroups_per_threadgroup": 1,
}
"""Attributes of positions, and the most lanes of their parameters."""
_OF_FUNCTIONS = re.compile(r"max_total_threads_per_threadgroup\(\d+\)|maybe_unused")
_KERNEL = re.compile(r"\bkernel\s+(?P<result>\w+)\s+(?P<name>\w+)\s*\((?P<params>.*?)\)\s*\{", re.S)
_LOCAL = re.compile(r"^( +(?:alignas\(\d+\) )?)(?=threadgroup \w+ \w+\b[^(]*;)", re.M)
_PARAM = re.compile(r"(?P<type>.*?[\s*&])(?P<name>\w+)\s*(?:\[\[(?P<attribute>.*?)\]\])?$", re.S)


def problems(text: str) -> list[str]:
    """What Metal's compiler would refuse in a program; empty where nothing is found."""
    return _of_attributes(text) or _of_clang(text)


def _of_attributes(text: str) -> list[str]:
    kernels = list(_KERNEL.finditer(text))
    if not kernels:
        return ["there is no kernel"]
    found: list[str] = []
    rest = text
    for kernel in kernels:
        if kernel["result"] != "void":
            found.append(f"kernel {kernel['name']} must return void")
        found += _of_params(kernel["params"])
        rest = rest.replace(kernel["params"], "")
    outside = re.findall(r"\[\[(.*?)\]\]", rest)
    return found + [f"unknown attribute {a}" for a in outside if not _OF_FUNCTIONS.fullmatch(a)]


def _of_params(params: str) -> list[str]:
    found: list[str] = []
    slots: list[str] = []
    for text in re.split(r",(?![^\[(]*[\])])", params):
        param = _PARAM.match(text.strip())
        if param is None:
            found.append(f"not a parameter: {text.strip()}")
            continue
        slots += re.findall(r"^buffer\((\d+)\)$", param["attribute"] or "")
        found += _of_param(param["type"].strip(), param["attribute"], text.strip())
    found += [f"buffer({slot}) is given twice" for slot in set(slots) if slots.count(slot) > 1]
    return found + [f"there is no buffer({slot})" for slot in slots if int(slot) >= MOST_BUFFERS]


def _of_param(kind: str, attribute: str | None, text: str) -> list[str]:
    """A buffer is a pointer or reference to device or constant memory; a position unsigned."""
    if attribute is None:
        return [f"a parameter of a kernel needs an attribute: {text}"]
    if re.fullmatch(r"buffer\(\d+\)", attribute):
        is_buffer = re.match(r"(?:const |volatile )*(?:device|constant)\b.*[*&]$", kind)
        return [] if is_buffer else [f"a buffer must point to device or constant memory: {text}"]
    if re.fullmatch(r"threadgroup\(\d+\)", attribute):
        return [] if re.match(r"threadgroup\b.*\*$", kind) else [f"not in a threadgroup: {text}"]
    lanes = _POSITIONS.get(attribute)
    if lanes is None:
        return [f"unknown attribute {attribute}"]
    wanted = r"(?:uint|ushort)" + ("[23]?" if lanes == 3 else "")
    return [] if re.fullmatch(wanted, kind) else [f"{attribute} is unsigned: {text}"]


def _of_clang(text: str) -> list[str]:
    command = [find_clang(), *FLAGS, "-include", str(HEADER), "-"]
    text = _as_cpp(text)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line]


def _as_cpp(text: str) -> str:
    """Without what C++ has no syntax for; structures in memory by `loaded` and `place`."""
    text = re.sub(r"#include <(metal_stdlib|metal_atomic|simd/simd\.h)>", "", text)
    text = re.sub(r"\[\[(?!maybe_unused).*?\]\]", "", text)
    text = re.sub(
        r"^( +(?:alignas\(\d+\) )?)(?=threadgroup \w+ \w+\b[^(]*;)", r"\1static ", text, flags=re.M
    )
    for name in re.findall(r"\bstruct (?:alignas\(\d+\) )?(\w+) \{", text):
        space = r"(device|threadgroup|thread)"
        text = re.sub(
            rf"\*\(const {space} {name}\*\)\(", rf"metal::loaded<{name}, const \1 {name}*>(", text
        )
        text = re.sub(rf"\*\({space} {name}\*\)\(", rf"metal::place<{name}, \1 {name}*>(", text)
    return text
