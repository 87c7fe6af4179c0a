"""Negations that feed minima of integers are spelled so that no compiler takes their sign away."""

from __future__ import annotations

import re

import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from cubepy.targets import parse_target
from tests.optional import require_package

TARGETS = ("cuda:sm_90a", "opencl")


@cp.cube
def of_shorts(x, y, out):
    i = cp.UNIT_POS
    out[i] = max(max(cp.i16(-x[i]), y[i] % (y[i] | 7)), y[i] >> 3)


@cp.cube
def of_sums(x, y, out):
    i = cp.UNIT_POS
    out[i] = min(cp.i32(y[i]), min(-x[i], x[i] + x[i]))


@cp.cube
def chosen(x, y, out):
    i = cp.UNIT_POS
    m = cp.i32(y[i])
    if -x[i] < m:
        m = -x[i]
    out[i] = min(m, 7)


@cp.cube
def carried(x, y, out):
    best = cp.i32(y[0])
    for i in range(4):
        best = min(best, ~x[i] + 1)
    out[0] = cp.i16(best)


@cp.cube
def selected(x, y, out):
    i = cp.UNIT_POS
    t = 0 - x[i] if y[i] > 3 else x[i] * -1
    out[i] = max(t, cp.i32(y[i]))


@cp.cube
def differences(x, y, out):
    i = cp.UNIT_POS
    y32 = cp.i32(y[i])
    out[i] = min(min(y32 - (y32 + x[i]), 3 * x[i] - (x[i] << 2)), ~(x[i] - 1))


@cp.cube
def of_places(x, y, out):
    p = cp.ABSOLUTE_POS
    out[p] = max(max(-cp.i32(p), x[p] | 7), x[p] >> 3)


@cp.cube
def of_two(x, y, out):
    i = cp.UNIT_POS
    out[i] = max(max(-x[i] - y[i], x[i] | 7), x[i] >> 3)


@cp.cube
def of_absolutes(x, y, out):
    i = cp.UNIT_POS
    out[i] = abs(x[i]) % 7 + (x[i] if x[i] >= 0 else -x[i])


@cp.cube
def of_branches(x, y, out):
    i = cp.UNIT_POS
    v = x[i]
    if v < 0:
        v = 0 - v
    out[i] = v % 7


@cp.cube
def of_choices(x, y, out):
    """NVVM knows that the middle one of `a`, 1 and `a` is `a`."""
    i = cp.UNIT_POS
    a, b = x[i], cp.i32(y[i])
    low, high = (a, 1) if a < 1 else (1, a)
    second = low if a < low else a
    middle = high if high < second else second
    out[i] = max(max(b, 1), a - (middle + i))


@cp.cube
def of_extrema(x, y, out):
    i = cp.UNIT_POS
    a = x[i]
    out[i] = min(min(cp.i32(a - (min(max(a, 1), a) + y[i])), 7), x[i] >> 3)


@cp.cube
def of_arguments(x, a, out):
    i = cp.UNIT_POS
    out[i] = min(min(cp.i32(a - (min(max(a, 1), a) + x[i])), 7), x[i] >> 3)


@cp.cube
def of_first_steps(x, y, out):
    i = cp.UNIT_POS
    best = x[i]
    for k in range(i & 3):
        best = max(max(best, cp.i32(k) - x[i]), cp.i32(k) - cp.i32(y[i]))
    out[i] = best


@cp.cube
def of_counted(x, y, out):
    i = cp.UNIT_POS
    best, n = x[i], cp.i32(0)
    while n < y[i]:
        n += 1
        best = max(max(best, n - 1 - x[i]), n - 1 - cp.i32(y[i]))
    out[i] = best


@cp.cube
def of_loads(x, y, out):
    i = cp.UNIT_POS
    held = cp.local(4, cp.i32, 3)
    held[i & 1] = x[i]
    best = x[i + 1]
    for k in cp.unroll(range(4)):
        for j in cp.unroll(range(4)):
            best = max(best, held[k] - (held[j] + cp.i32(y[i])))
    out[i] = best


@cp.cube
def of_stored(x, y, out):
    i = cp.UNIT_POS
    held = cp.local(4, cp.i32, 3)
    held[0] = -x[i]
    held[2 + (x[i] & 1)] = x[i + 1]
    out[i] = min(min(held[0], held[1]), held[2] + 3)


@cp.cube
def of_stored_zeros(x, y, out):
    i = cp.UNIT_POS
    held = cp.local(4, cp.i32, 0)
    held[x[i] & 1] = 7
    out[i] = min(min(held[2] - x[i], held[3] - x[i + 1]), held[0])


@cp.cube
def of_kept(x, y, out):
    i = cp.UNIT_POS
    least = cp.local(2, cp.i32, 3)
    least[y[i] & 1] = 7
    if -x[i] < least[0]:
        least[0] = -x[i]
    out[i] = min(least[0], cp.i32(y[i]))


@cp.cube
def of_chosen_zeros(x, y, out):
    i = cp.UNIT_POS
    first = 0 if y[i] > 3 else x[i]
    out[i] = max(max(first - x[i + 1], x[i] | 7), x[i] >> 3)


@cp.cube
def ordinary(x, y, out):
    i = cp.UNIT_POS
    out[i] = max(min(x[i] - y[i], 255), 0) - min(x[i], 7)
    out[i] += max(x[i] - min(x[i], 7), 0) + max(min(x[i], 255) - y[i], min(y[i] - x[i], 3))


@cp.cube
def of_floats(x, out):
    i = cp.UNIT_POS
    out[i] = min(min(-x[i], x[i] * 2.0), 1.0)


INTEGERS = ("i32[8]", "i16[8]", "i32[8]")


def text(kernel: cp.CubeKernel, target: str, specs: tuple[str, ...] = INTEGERS) -> str:
    return kernel[1, 8].inspect(*specs, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "kernel",
    [
        of_shorts,
        of_sums,
        chosen,
        carried,
        selected,
        differences,
        of_places,
        of_two,
        of_absolutes,
        of_branches,
        of_choices,
        of_extrema,
        of_first_steps,
        of_counted,
        of_loads,
        of_stored,
        of_stored_zeros,
        of_kept,
        of_chosen_zeros,
    ],
)
def test_negations_before_minima_are_hidden(kernel: cp.CubeKernel, target: str):
    assert "hidden_negation" in text(kernel, target)


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_cancel_as_well(target: str):
    assert "hidden_negation" in text(of_arguments, target, ("i32[8]", "i32", "i32[8]"))


@pytest.mark.parametrize("target", TARGETS)
def test_ordinary_kernels_have_none(target: str):
    assert "hidden_negation" not in text(ordinary, target)
    assert "hidden_negation" not in text(of_floats, target, ("f32[8]", "f32[8]"))


@pytest.mark.parametrize("target", ["hip:gfx942", "metal"])
def test_other_compilers_get_plain_signs(target: str):
    assert "hidden_negation" not in text(of_sums, target)


@pytest.mark.parametrize("kernel", [of_sums, carried])
def test_the_machine_code_negates(kernel: cp.CubeKernel):
    """By complement and sum: each minimum takes the sum, or makes it itself (VIADDMNMX)."""
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None or toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    sass = toolchain.to_sass(text(kernel, "cuda:sm_90a"), parse_target("cuda:sm_90a"))
    complements = len(re.findall(r"LOP3\.LUT \w+, RZ, \w+, RZ, 0x33", sass))
    assert complements == (4 if kernel is carried else 1)
