"""Which loops LLVM's whole pipeline still has to do with, and that the passes that tidy up are
chosen for the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm import toolchain
from cubepy.compilers.llvm.loops import are_final

LINES = cp.Lines[cp.f32]
SCALARS = cp.Tensor[cp.f32]


@cp.cube
def total(x: LINES, w: LINES, out: LINES):
    v = cp.Line[cp.f32, out.line_size](0.0)
    for k in range(x.size):
        v += x.flat[k]
    out.flat[0] = v


@cp.cube
def total_in_place(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        out.flat[0] += x.flat[k]


@cp.cube
def scaled_total(x: LINES, w: LINES, out: LINES):
    v = cp.Line[cp.f32, out.line_size](0.0)
    for k in range(x.size):
        v += x.flat[k] * cp.exp(w.flat[0])
    out.flat[0] = v


@cp.cube
def read_twice(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        out.flat[k] = cp.exp(x.flat[k])
        w.flat[k] = cp.exp(x.flat[k])


@cp.cube
def read_back(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        w.flat[k] = x.flat[k]
        out.flat[k] = w.flat[k]


@cp.cube
def written_twice(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        out.flat[k] = x.flat[k]
        out.flat[k] = w.flat[k]


@cp.cube
def updated(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        out.flat[k] += x.flat[k]


@cp.cube
def held_by_units(x: LINES, w: LINES, out: LINES):
    """Places of `sums` are known, so that they are registers."""
    sums = cp.local(2, cp.Line[cp.f32, out.line_size])
    sums[0] = x.flat[0]
    sums[1] = x.flat[0]
    for k in range(x.size):
        sums[0] += x.flat[k]
        sums[1] += w.flat[k]
    out.flat[0] = sums[0]
    out.flat[1] = sums[1]


@cp.cube
def one_number(x: SCALARS, w: SCALARS, out: SCALARS):
    for k in range(x.size):
        out[k] = x[k] + w[k]


@cp.cube
def either(x: LINES, w: LINES, out: LINES):
    """Of two accesses to a place only one happens."""
    for k in range(x.size):
        if k % 3 == 0:
            out.flat[k] = cp.exp(x.flat[k])
        else:
            out.flat[k] = x.flat[k]


@cp.cube
def before_and_in(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        v = cp.exp(x.flat[k])
        if k % 3 == 0:
            w.flat[k] = cp.exp(x.flat[k])
        out.flat[k] = v


@cp.cube
def counted(x: LINES, w: LINES, out: LINES):
    """A sum of integers that are computed: LLVM adds up lines of them."""
    n = cp.i32(0)
    for k in range(x.size):
        if cp.i32(k) * 7 % 8 == 3:
            n += 1
    out.flat[0] = cp.Line[cp.f32, out.line_size](n)


@cp.cube
def fetched_ahead(x: LINES, w: LINES, out: LINES):
    for k in range(x.size):
        cp.prefetch(x.flat, k)
    out.flat[0] = x.flat[0]


@cp.cube
def histogram(data: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    counts = cp.shared(64, cp.i32)
    for k in range(64):
        counts[k] = 0
    for k in range(data.size):
        cp.atomic.add(counts, data[k] % 64, 1)
    for k in range(64):
        out[k] = counts[k]


CASES: list[tuple[Any, bool]] = [
    (total, True),
    (updated, True),
    (held_by_units, True),
    (total_in_place, False),
    (scaled_total, False),
    (read_twice, False),
    (read_back, False),
    (written_twice, False),
    (one_number, False),
    (either, True),
    (before_and_in, False),
    (counted, False),
    (fetched_ahead, True),
]


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """What is decided of each module that is compiled."""
    seen: list[bool] = []

    def ask(text: str) -> bool:
        seen.append(are_final(text))
        return seen[-1]

    monkeypatch.setattr(toolchain, "are_final", ask)
    with cp.settings(cache=False):
        yield seen


def run(kernel: Any, level: int, checked: bool = False) -> np.ndarray:
    x, w, out = (np.linspace(k, k + 1, 64, dtype=np.float32) for k in range(3))
    with cp.settings(opt_level=level):
        kernel.configure(checked=checked)[1, 1](x, w, out)
    return np.stack([w, out])


@pytest.mark.parametrize("kernel, final", CASES, ids=lambda k: getattr(k, "__name__", ""))
def test_what_is_left_to_llvm(decided: list[bool], kernel: Any, final: bool):
    result = run(kernel, 2)
    assert decided == [final]
    np.testing.assert_array_equal(result, run(kernel, 3))
    assert decided == [final], "level 3 asks for all passes"


def test_checks_are_left_to_llvm(decided: list[bool]):
    run(total, 2, checked=True)
    assert decided == [False]


def test_loops_to_unroll_are_left_to_llvm(decided: list[bool]):
    data, out = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    histogram[1, 1](data, out)
    assert decided == [False]
    assert (out == 4).all()


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


FAMILIES: dict[str, Callable[[], Any]] = {
    "matmul": lambda: cp.kernels.matmul(ones(96, 96), ones(96, 96)),
    "large matmul": lambda: cp.kernels.matmul(ones(256, 256), ones(256, 256)),
    "conv2d": lambda: cp.kernels.conv2d(ones(1, 16, 20, 20), ones(16, 16, 3, 3), padding=1),
    "attention": lambda: cp.kernels.attention(*[ones(2, 64, 64)] * 3),
    "max_pool2d": lambda: cp.kernels.max_pool2d(ones(1, 2, 20, 20), 2),
    "sum": lambda: cp.kernels.sum(ones(64, 200), axis=1),
    "softmax": lambda: cp.kernels.softmax(ones(64, 200)),
    "layer_norm": lambda: cp.kernels.layer_norm(ones(64, 200), 200),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_loops_of_prebuilt_kernels_are_final(decided: list[bool], family: str):
    """First calls of them are to be fast."""
    FAMILIES[family]()
    assert decided and decided[-1]


def test_loops_of_text():
    """Innermost loops alone count; positions in debug builds change nothing."""
    text = """
define void @f(ptr %x, ptr %y, i64 %n) {
entry:
  br label %outer
outer:
  %i = phi i64 [0, %entry], [%i2, %next]
  %s = load i64, ptr %x
  br label %inner
inner:
  %k = phi i64 [0, %outer], [%k2, %inner]
  %v.1 = mul i64 %k, 8, !dbg !7
  %p.1 = getelementptr float, ptr %x, i64 %v.1
  %a = load <8 x float>, ptr %p.1, align 4, !dbg !8
  %v.2 = mul i64 %k, 8, !dbg !9
  %p.2 = getelementptr float, ptr SECOND, i64 %v.2
  %b = load <8 x float>, ptr %p.2, align 4, !dbg !10
  %k2 = add i64 %k, 1
  br i1 %c, label %inner, label %next
next:
  %i2 = add i64 %i, 1
  br i1 %d, label %outer, label %end
end:
  ret void
}"""
    assert are_final(text.replace("SECOND", "%y"))
    assert not are_final(text.replace("SECOND", "%x"))


@cp.cube
def totals(x: SCALARS, out: SCALARS):
    lines = tuple(cp.Line[cp.f32, 8](0.0) for _ in range(8))
    for i in range(0, x.size, 64):
        lines = tuple(
            cp.where(lines[k] != 0, lines[k], cp.load(x, i + k * 8, line=8, fill=None))
            for k in range(8)
        )
    for k in cp.unroll(range(8)):
        cp.store(out, k * 8, lines[k], whole=True)


def test_loads_stay_in_order(decided: list[bool]):
    """Processors fetch ahead what is read upwards."""
    text = totals.inspect("f32[?]", "f32[?]", stage="llvm")
    assert decided == [True]
    places = re.findall(r"i64 (\d+)\n +%x\.\d+ = load <8 x float>", text)
    assert places == [str(32 * k) for k in range(1, 8)]
