"""Comments, names and depths of a user's source that C compilers would read in their own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from cubepy.compilers.cstyle.namer import Namer
from cubepy.compilers.cstyle.writer import comment, printable

TARGETS = ("cuda:sm_90a", "opencl", "hip:gfx942", "metal")
KERNEL = """
import cubepy as cp

@cp.cube
def k(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + 1.0 # {}
"""


def made(tmp_path: Path, text: str) -> Any:
    """The kernel `k` of a file."""
    file = tmp_path / "hostile.py"
    file.write_text(text)
    found: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), found)
    return found["k"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text", ["a\\:", "a\\", "\\ :", "why???/", "????/", "??/:", "*/ x", "//*", "?" * 9 + "/"]
)
def test_comments_end_with_their_line(tmp_path: Path, target: str, text: str):
    spec = cp.spec("f32[8]")
    listing = made(tmp_path, KERNEL.format(text)).inspect(spec, spec, target=target, stage="source")
    for line in listing.splitlines():
        before, mark, after = line.partition("//")
        assert not mark or not (after.endswith("\\") or "??" in after or before.strip())
    assert listing.count("out[") >= 1 or "out" in listing


def test_what_is_printable():
    assert printable("a\\b") == "a b" and "??" not in printable("?????")
    assert not comment(("x.py", 1)).endswith("\\")


@pytest.mark.parametrize("target", TARGETS)
def test_comments_of_deep_statements_are_whole(tmp_path: Path, target: str):
    text = "import cubepy as cp\n@cp.cube\ndef k(x, out):\n    i = cp.ABSOLUTE_POS\n    v = x[i]\n"
    for j in range(30):
        text += "    " * (1 + j) + f"if v > {j}.0:\n" + "    " * (2 + j) + f"v = v * 1.5 + {j}.0\n"
    spec = cp.spec("f32[8]")
    listing = made(tmp_path, text + "    out[i] = v\n").inspect(
        spec, spec, target=target, stage="source"
    )
    assert not any(
        line.strip().startswith("/") and "//" not in line for line in listing.splitlines()
    )


@pytest.mark.parametrize(
    "name",
    ["CLK_A", "cl_khr_3d", "cudaStream", "CUDART_INF", "NV_IF", "image2d_msaa_t", "read_pipe"],
)
def test_names_of_systems_get_a_mark(name: str):
    assert Namer(frozenset()).fresh(name) == f"own_{name}"


def test_names_are_no_longer_than_file_names():
    namer = Namer(frozenset())
    found = {namer.fresh("y" * 5000) for _ in range(20)}
    assert len(found) == 20 and max(map(len, found)) < 128


@pytest.mark.parametrize("target", TARGETS)
def test_chains_are_not_nested(tmp_path: Path, target: str):
    text = "import cubepy as cp\n@cp.cube\ndef k(x, out):\n    v = x[0]\n"
    text += "    if v < 0:\n        out[0] = 1\n"
    for j in range(5):
        text += f"    elif v < {j + 1}:\n        out[0] = v * {j}\n"
    text += "    else:\n        out[0] = v\n        if v > 500:\n            out[0] = 3\n"
    spec = cp.spec("f32[8]")
    listing = made(tmp_path, text).inspect(spec, spec, target=target, stage="source")
    assert listing.count("} else if (") == 5 and listing.count("} else {") == 1
