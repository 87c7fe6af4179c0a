"""Guards of one known step of a loop, at which NVVM would end this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.ptx import launching

UNITS = 16


def is_zero(k: Any) -> Any:
    return k == 0


def zero_is(k: Any) -> Any:
    return 0 == k


def is_below_one(k: Any) -> Any:
    return k < 1


def exceeds(k: Any) -> Any:
    return 1 > k


def is_at_most_zero(k: Any) -> Any:
    return k <= 0


def is_not_positive(k: Any) -> Any:
    return not k > 0


def is_no_other(k: Any) -> Any:
    return not k != 0


def is_no_truth(k: Any) -> Any:
    return not k


def is_two(k: Any) -> Any:
    return k == 2


def doubled_is_four(k: Any) -> Any:
    return k * 2 == 4


def float_is_below_one(k: Any) -> Any:
    return cp.f32(k) < 1.0


def float_is_zero(k: Any) -> Any:
    return cp.f64(cp.i32(k)) == 0


def float_is_no_truth(k: Any) -> Any:
    return not cp.f32(k)


def float_of_next_is_one(k: Any) -> Any:
    return 1 >= cp.f64(k + 1)


def half_is_below_one(k: Any) -> Any:
    return cp.f16(k) < 1.0


GUARDS = (
    float_is_below_one,
    float_is_zero,
    float_is_no_truth,
    float_of_next_is_one,
    half_is_below_one,
    is_zero,
    zero_is,
    is_below_one,
    exceeds,
    is_at_most_zero,
    is_not_positive,
    is_no_other,
    is_no_truth,
)
LATER = (is_two, doubled_is_four)


def joined(x: Any, k: Any, found: Any, most: Any) -> Any:
    return not found or x[k] > most


def computed(x: Any, k: Any, found: Any, most: Any) -> Any:
    return not found or cp.u32(k) + x[k] > most


def divided(x: Any, k: Any, found: Any, most: Any) -> Any:
    return not found or x[0] // (most + 1) > most


@cp.cube
def greatest(x, n, guard: cp.Comptime[Any], replaces: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    steps = n[i]
    found, most = False, cp.u32(0)
    if steps > 3:
        for k in range(steps):
            if guard(k):
                v = cp.u32(k) + x[i]
                is_first = replaces(x, k, found, most)
                found = True if is_first else found
                most = v if is_first else most
    out[i] = most


@cp.cube
def branching(x, n, guard: cp.Comptime[Any], replaces: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    steps = n[i]
    found, most = False, cp.u32(0)
    k = 0
    if steps > 3:
        while k < steps:
            if guard(k):
                if not found:
                    found, most = True, x[i]
                elif replaces(x, k, found, most):
                    most = x[i] + 1
            k += 1
    out[i] = most


@pytest.mark.optional("cuda.bindings")
@pytest.mark.parametrize("kernel", [greatest, branching])
@pytest.mark.parametrize("replaces", [joined, computed, divided])
@pytest.mark.parametrize("guard", [*GUARDS, *LATER])
def test_known_steps(kernel: Any, replaces: Callable[..., Any], guard: Callable[[Any], Any]):
    launching.require()
    x = np.random.default_rng().integers(1, 99, UNITS).astype(np.uint32)
    n, out = np.arange(UNITS, dtype=np.int32), np.full(UNITS, 7, np.uint32)

    @cp.cube
    def made(x, n, out):
        kernel.function(x, n, guard, replaces, out)

    launching.launch(made, UNITS, [x, n, out])
    step = 2 if guard in LATER and kernel is greatest else 0
    np.testing.assert_array_equal(out, np.where(n > 3, x + step, 0))


@cp.cube
def of_extents(x, n, out):
    i = cp.UNIT_POS
    found, most = False, cp.u32(0)
    if n[i] > 3:
        for k in range(x.shape[0]):
            if k == 0:
                is_first = not found or x[k] > most
                found = True if is_first else found
                most = x[i] if is_first else most
    out[i] = most


@pytest.mark.optional("cuda.bindings")
def test_counters_of_extents():
    launching.require()
    x = np.random.default_rng().integers(1, 99, UNITS).astype(np.uint32)
    n, out = np.arange(UNITS, dtype=np.int32), np.full(UNITS, 7, np.uint32)
    text = of_extents[1, UNITS].inspect(x, n, out, target="cuda:sm_90a", stage="ptx")
    assert "ld.global" in text
