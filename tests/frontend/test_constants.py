"""Constants of a trace: one for all that may use it, and none where it may not."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cp
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Region
from cubepy.ir.verify import verify
from cubepy.targets import parse_target


def traced(kernel: Any, **arguments: Any) -> Kernel:
    """The kernel before any pass."""
    target = parse_target("cpu:x86-64-v3")
    signature = kernel.signature_of(arguments, target, None)
    return kernel.specialisations.trace(signature, target)[0]


def constants(region: Region) -> list[Any]:
    """The numbers of the constants of a region, inner ones not counted."""
    return [op.attrs["value"] for op in region.ops if op.row is ops.CONST]


def test_a_region_has_each_constant_once():
    @cp.cube
    def kernel(x, out):
        out[5] = x[5] * 2.5 + 2.5
        if x[5] > 2.5:
            out[6] = x[5] * 2.5 + 7.5
        else:
            out[7] = x[6] + 7.5
        out[6] = x[6] * 7.5

    found = verify(traced(kernel, x=np.ones(8, np.float32), out=np.ones(8, np.float32)))
    assert sorted(constants(found.body)) == [2.5, 5, 6, 7.5]
    (branch,) = [op for op in found.body.ops if op.row is ops.IF]
    assert [sorted(constants(region)) for region in branch.regions] == [[6, 7.5], [6, 7, 7.5]]


def test_constants_that_are_equal_and_not_the_same():
    @cp.cube
    def kernel(x, out):
        out[0] = cp.copysign(1.0, cp.f32(0.0))
        out[1] = cp.copysign(1.0, cp.f32(-0.0))
        out[2] = x[0] * 1.0
        out[3] = cp.f32(cp.i32(1)) / cp.f32(cp.i64(2)) + cp.f32(x[0] == 1)

    out = np.zeros(4, np.float32)
    kernel[1, 1](np.ones(1, np.float32), out)
    assert out.tolist() == [1, -1, 1, 1.5]
    body = traced(kernel, x=np.ones(1, np.float32), out=out).body
    numbers = [(type(n), str(n)) for n in constants(body)]
    assert len(set(numbers)) > 3
    assert {(float, "0.0"), (float, "-0.0")} <= set(numbers)


def test_constants_of_loops_and_calls_stay_in_them():
    def step(v):
        if v > 3.25:
            return v * 3.25
        return v + 4.25

    @cp.cube
    def kernel(x, out, n: int):
        total = 0.0
        for i in range(n):
            if x[i] < 0:
                continue
            total += step(x[i]) * 4.25
        out[0] = total * 4.25 + 3.25

    x = np.arange(-3, 9).astype(np.float32)
    out = np.zeros(1, np.float32)
    verify(traced(kernel, x=x, out=out, n=12))
    kernel[1, 1](x, out, 12)
    kept = x[x >= 0].astype(np.float64)
    total = np.where(kept > 3.25, kept * 3.25, kept + 4.25).sum() * 4.25
    np.testing.assert_allclose(out, total * 4.25 + 3.25, rtol=1e-6)
