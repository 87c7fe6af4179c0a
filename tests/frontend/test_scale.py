"""Large kernels: few traces, time that grows with their size, chains of any length."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend import specialise


def made(tmp_path: Path, text: str, name: str = "kernel") -> Any:
    """A function of a file with this text."""
    file = tmp_path / f"scale_{abs(hash(text))}.py"
    file.write_text("import cubepy as cp\n\n\n" + text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": file.stem}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    return names[name]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each trace."""
    found: list[int] = []
    kernel = specialise._Specialisation.kernel

    def counted(self: Any) -> Any:
        found.append(1)
        return kernel(self)

    monkeypatch.setattr(specialise._Specialisation, "kernel", counted)
    return found


HELPER = """
def helper(v, m):
    if v > m:
        return v * 0.5
    return v + 1


"""


def chain_of_locals(count: int) -> str:
    """Each local is computed from the next one, and only the last meets a type."""
    names = [f"v{k}" for k in range(count)]
    lines = [f"    {name} = 0.0" for name in names] + ["    for _ in range(3):"]
    lines += [f"        {a} = {b} + {a}" for a, b in pairwise(names)]
    lines += [f"        {names[-1]} = {names[-1]} + x[0]", f"    out[0] = {names[0]}"]
    return "def kernel(x, out):\n" + "\n".join(lines) + "\n"


def unrolled_jumps(count: int) -> str:
    lines = ["def kernel(x, out):", "    s = 0"]
    for k in range(count):
        lines += [
            f"    for k in cp.unroll(range({k % 4 + 2})):",
            f"        if x[0] > k * {k}:",
            "            continue",
            "        if x[0] < -k:",
            "            break",
            "        s += cp.i32(x[0])",
        ]
    return "\n".join([*lines, "    out[0] = s"]) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        HELPER + "def kernel(x, out):\n    a = x[0]\n" + "    a = helper(a, 3)\n" * 220,
        chain_of_locals(40),
        unrolled_jumps(12),
    ],
    ids=["early returns", "a chain of locals", "jumps of unrolled loops"],
)
def test_a_kernel_is_traced_three_times_at_most(text: str, tmp_path: Path, traces: list[int]):
    kernel = cp.cube(made(tmp_path, text + "    out[0] = a\n" * ("helper" in text)))
    kernel[1, 1](np.array([1.5]), np.zeros(1))
    assert 1 <= len(traces) <= 3


def test_common_kernels_are_traced_once(traces: list[int]):
    def sums(x, out):
        acc = 0.0
        for k in range(x.shape[0]):
            acc += x[k] * 0.5
        best = x[0]
        if acc > best:
            best = acc
        out[0] = best

    cp.cube(sums)[1, 1](np.ones(4, np.float32), np.zeros(1, np.float32))
    assert len(traces) == 1


def count_calls(function: Any) -> int:
    """Calls of functions from tracing to LLVM's text: the work, whatever else the machine does."""
    count = 0

    def profile(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # its callbacks would count
    sys.setprofile(profile)
    try:
        cp.cube(function)[1, 1].inspect("f32[1000]", "f32[1000]", "i32", stage="llvm")
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def statements(count: int) -> str:
    lines = [f"    {'abc'[k % 3]} = {'abc'[(k + 1) % 3]} * {k % 7}.5 + x[0]" for k in range(count)]
    head = "def kernel(x, out, n):\n    a = x[0]\n    b = a * 2\n    c = a + 1\n"
    return head + "\n".join(lines) + "\n    out[0] = a + b + c\n"


def unrolled(count: int) -> str:
    return f"""def kernel(x, out, n):
    a = x[0]
    b = 0.0
    for k in cp.unroll(range({count})):
        t = a * 0.5 + b
        b = t + k
        if n == k:
            b = 1.0
    out[0] = b
"""


def branches(count: int) -> str:
    lines = ["def kernel(x, out, n):", "    a = 0.0"]
    for k in range(count):
        lines += [f"    {'el' * (k > 0)}if n == {k}:", f"        a = x[{k}] + {k}"]
    return "\n".join([*lines, "    out[0] = a"]) + "\n"


def calls(count: int) -> str:
    return (
        HELPER
        + "def kernel(x, out, n):\n    a = x[0]\n"
        + "    a = helper(a, n)\n" * count
        + "    out[0] = a\n"
    )


@pytest.mark.parametrize("shape", [statements, unrolled, branches, calls])
def test_compiling_takes_work_in_proportion_to_size(shape: Any, tmp_path: Path):
    count_calls(made(tmp_path, shape(10)))  # what any kernel needs once
    small, large = (count_calls(made(tmp_path, shape(count))) for count in (100, 400))
    assert large < 4 * 1.1 * small


# Long chains


def long_chain(kind: str, count: int) -> str:
    """In a loop, with jumps, an early return, and locals of two types that the arms bind."""
    lines = ["def kernel(n, out):", "    s = 0", "    for k in range(n):"]
    if kind == "match":
        lines.append("        match k:")
    for k in range(count):
        indent = "        " if kind == "if" else "            "
        test = f"{'el' * (k > 0)}if k == {k}:" if kind == "if" else f"case {k}:"
        lines.append(f"{indent}{test}")
        inner = indent + "    "
        lines.append(f"{inner}v = {'cp.i64(k) * 2' if k % 3 else k + 7}")
        if k % 11 == 5:
            lines.append(f"{inner}continue")
        if k == count - 2:
            lines.append(f"{inner}break")
    tail = ["        else:", "            v = -1"]
    lines += tail if kind == "if" else ["            case _:", "                v = -1"]
    lines += ["        s = s + v", "    out[0] = s"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["if", "match"])
@pytest.mark.parametrize("count", [33, 400])
@pytest.mark.parametrize("device", [None, "interpreter"])
def test_long_chains(kind: str, count: int, device: Any, tmp_path: Path):
    function = made(tmp_path, long_chain(kind, count))
    kernel = cp.cube(function)
    if device is not None:
        kernel = kernel.configure(device=device)
    for n in (0, 3, 30, count - 2, count - 1, count + 5):
        out, wanted = np.zeros(1, np.int64), np.zeros(1, np.int64)
        kernel[1, 1](n, out)
        function(n, wanted)
        assert out[0] == wanted[0], n


def test_a_long_chain_in_a_helper_returns(tmp_path: Path):
    arms = [f"    {'el' * (k > 0)}if v == {k}:\n        return {k * 3}" for k in range(60)]
    text = "def helper(v):\n" + "\n".join(arms) + "\n    return -v\n\n\n"
    text += "def kernel(x, out):\n    i = cp.ABSOLUTE_POS\n"
    text += "    if i < out.size:\n        out[i] = helper(x[i])\n"
    x = np.arange(-5, 70)
    out = np.zeros_like(x)
    cp.cube(made(tmp_path, text)).over(out)(x, out)
    assert out.tolist() == [3 * v if 0 <= v < 60 else -v for v in x.tolist()]


LOOPS = {
    "sum": "out[0] = sum([x[k % 3] for k in range(10**9)])",
    "list": "out[0] = len([k for k in range(10**9)])",
    "nested": "out[0] = sum(i * j for i in range(300) for j in range(300))",
    "star": "out[0] = len([*range(10**9)])",
    "rest": "first, *rest = range(10**9)",
    "generator": "for v in (x[k] for k in range(10**9)):\n        out[0] += v",
    "tuple": "for v in (0,) * 70_000:\n        out[0] += v",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_what_would_be_traced_too_often_is_refused(body: str, tmp_path: Path):
    kernel = cp.cube(made(tmp_path, f"def kernel(x, out):\n    {body}\n"))
    with pytest.raises(cp.CompileError, match="E120"):
        kernel[1, 1](np.ones(3), np.ones(3))


def test_any_stops_early_in_a_long_range():
    @cp.cube
    def kernel(out):
        out[0] = any(k * k == 49 for k in range(10**9))

    out = np.zeros(1)
    kernel[1, 1](out)
    assert out[0] == 1
