"""Deep nesting: compiled, or refused by E122; never one of Python's own errors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from cubepy.ir import depth
from cubepy.ir.depth import deep_calls
from cubepy.passes.legalise import check_target

HELPERS, LEVELS = 5, 40


def nested() -> str:
    """Branches in branches, through helpers that call helpers."""
    lines = ["import cubepy as cp"]
    for h in range(HELPERS):
        lines.append(f"def h{h}(v, x):")
        lines += ["    " * (d + 1) + f"if x[{d}] > v:" for d in range(LEVELS)]
        inner = f"h{h + 1}(v + 1, x)" if h + 1 < HELPERS else "v + 1"
        lines += ["    " * (LEVELS + 1) + f"v = {inner}", "    return v"]
    lines += ["@cp.cube", "def kernel(x, out):", "    out[0] = h0(x[0], x)", ""]
    return "\n".join(lines)


def wide(count: int) -> str:
    terms = " + ".join(f"x[{k % 90}]" for k in range(count))
    return f"import cubepy as cp\n@cp.cube\ndef kernel(x, out):\n    out[0] = {terms}\n"


def made(path: Path, text: str) -> Any:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80", "opencl"])
def test_wherever_the_room_ends_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
):
    kernel, outcomes = made(tmp_path / "nested.py", nested()), set[bool]()
    for frames in (1001, 1150, 1300, 1450, 1600, 1800, 2500, 4000):
        monkeypatch.setattr(depth, "_PYTHON_FRAMES", frames)
        try:
            kernel[1, 1].inspect("f32[100]", "f32[1]", target=target)
            outcomes.add(True)
        except cp.CompileError as error:
            assert error.code == "E122"
            outcomes.add(False)
    assert outcomes == {True, False}


def test_the_room_is_that_of_a_block():
    def recurse(n: int) -> int:
        return recurse(n + 1) + 1

    with pytest.raises(cp.CompileError, match="E122"), deep_calls():
        recurse(0)


def test_text_is_parsed_for_errors_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Naming each operation, in case it is refused, took time in the square of an expression."""

    def never(op: Any) -> str:
        raise AssertionError

    monkeypatch.setattr(check_target, "_written", never)
    made(tmp_path / "wide.py", wide(300))[1, 1].inspect("f32[100]", "f32[1]", target="cpu")
