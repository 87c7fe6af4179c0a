"""Types of locals that settle late, each trace going further, and those that never do."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend import locals as frontend_locals
from tests.guarded import Guarded


def test_types_that_never_settle_are_reported(monkeypatch: pytest.MonkeyPatch):
    @cp.cube
    def kernel(x, out):
        settled = x[0] * 2
        total = 0
        total += x[0]
        out[0] = total + settled

    monkeypatch.setattr(frontend_locals, "is_right", lambda local: local.name != "total")
    out = Guarded(1)
    with pytest.raises(cp.CompileError, match=r"E121: the type of `total`(.|\n)*cp.i32\(0\)") as e:
        kernel[1, 1](np.ones(1, np.uint8), out.array)
    assert out.is_untouched
    assert e.value.span is not None and e.value.span.function == "kernel"


def _last_below(count, bound):
    """Its types are known when `bound`, a literal, has met the counter of the loop."""
    found = bound - count
    if count > 0:
        for k in range(5):
            bound = k
        for _ in range(bound):
            found = bound
    return found


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("calls", [1, 2, 3, 4, 9])
def test_each_trace_goes_further_than_the_one_before(calls: int, checked: bool):
    @cp.cube
    def kernel(x, out, calls: cp.Comptime[int]):
        for k in cp.unroll(range(calls)):
            out[k] = _last_below(1, k if x[0] > 0 else 8)

    out = np.full(calls, -1)
    kernel.configure(checked=checked)[1, 1](np.ones(1, np.int32), out, calls)
    assert (out == 4).all()


def test_checks_of_types_that_settle_late_are_traced_again():
    def tested(count, bound):
        found = bound - count
        if count if found else found - 5:
            for k in range(5):
                bound = k
            for _ in range(bound):
                found = bound
        return found

    @cp.cube
    def kernel(x, out):
        out[0] = tested(1, 3 if x[0] else 8)
        out[1] = tested(x[0], 0)

    out = np.full(2, -1)
    kernel.configure(checked=True)[1, 1](np.ones(1, np.int64), out)
    assert out.tolist() == [4, 4]


def test_an_error_behind_types_that_settle_late_is_reported():
    @cp.cube
    def kernel(x, out):
        for k in cp.unroll(range(5)):
            out[k] = _last_below(1, k if x[0] > 0 else 8)
        out[0] = "text"

    with pytest.raises(cp.CompileError, match="text"):
        kernel[1, 1](np.ones(1, np.int32), np.zeros(5, np.int64))


def test_help_for_a_counter_that_a_loop_assigns_to_an_i32():
    @cp.cube
    def kernel(x, out):
        best = cp.i32(-1)
        for k in range(3):
            if x[k] > 0:
                best = k
        out[0] = best

    with pytest.raises(cp.CompileError, match=r"E210(.|\n)*cp.i32\(j\)"):
        kernel[1, 1](np.ones(3, np.int32), np.zeros(1, np.int32))
