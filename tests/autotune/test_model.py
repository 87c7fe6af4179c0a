"""Counting what launches do, and how long the model says that takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.cost import Launch, Work, work_of
from cubepy.autotune.model import HOPPER, bound, machine_of, resident, seconds
from cubepy.jit.ahead import compiling_ahead
from cubepy.targets import cpu_target, parse_target


@cp.cube
def product(a, b, out):
    row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if row < out.shape[0] and column < out.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        out[row, column] = total


@cp.cube
def counted(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS
    total = x[i]
    while total < 100.0:
        total = total * 2.0
    for _ in range(n):
        total += 1.0
    out[i] = total


def work(kernel, grid, *args, **kwargs) -> tuple[Work, int]:
    with compiling_ahead() as made, cp.settings(opt_level=2):
        kernel.over(grid)(*args, **kwargs)
    (found,) = made.launches
    at = len(found.artifact.slots)
    x, y, z = found.block[at : at + 3]
    return work_of(made.kernels[id(found.artifact)], found.block, (x, y, z)), x * y * z


def test_a_product_is_counted_exactly():
    a, b = np.ones((32, 77), np.float32), np.ones((77, 64), np.float32)
    out = np.zeros((32, 64), np.float32)
    found, cubes = work(product, out, a, b, out)
    assert found.floats == 2 * 77
    assert found.loaded == 2 * 4 * 77 and found.stored == 4
    assert cubes > 0 and not out.any()  # nothing was launched


def test_what_is_not_known_is_taken_to_be_in_the_middle():
    x = np.ones(1024, np.float32)
    found, _ = work(counted, x, x, np.zeros_like(x), 5)
    assert found.floats >= 8 + 5


UNIT = Work(issued=1000, floats=500, loaded=4000, stored=4)


def test_more_work_takes_longer_and_more_cores_less():
    launch = Launch(UNIT, 10_000, 256)
    plain = seconds(HOPPER, [launch], 1 << 20)
    assert seconds(HOPPER, [replace(launch, cubes=20_000)], 1 << 20) > 1.5 * plain
    assert seconds(replace(HOPPER, cores=264), [launch], 1 << 20) < plain
    assert seconds(HOPPER, [launch, launch], 1 << 20) == pytest.approx(2 * plain)


def test_registers_and_shared_memory_bound_what_a_core_holds():
    assert resident(HOPPER, Launch(UNIT, 1, 256, registers=32)) == 8
    assert resident(HOPPER, Launch(UNIT, 1, 256, registers=128)) == 2
    assert resident(HOPPER, Launch(UNIT, 1, 128, shared_bytes=100 << 10)) == 2
    assert resident(HOPPER, Launch(UNIT, 1, 1024, registers=255)) == 1


def test_latency_counts_where_few_units_hide_it():
    few = Launch(replace(UNIT, loaded=0.0), 132, 32)
    many = Launch(replace(UNIT, loaded=0.0), 132 * 4, 32)
    assert seconds(HOPPER, [many], 0) < 1.5 * seconds(HOPPER, [few], 0)


def test_the_bound_is_below_every_prediction():
    for cubes in (1, 132, 5000):
        for products in (0.0, 1e6):
            launch = Launch(replace(UNIT, products=products), cubes, 128)
            for touched in (0, 1 << 20, 1 << 33):
                assert bound(HOPPER, [launch], touched) <= seconds(HOPPER, [launch], touched)


def test_only_what_was_measured_bounds_anything():
    launch, large = Launch(UNIT, 1000, 128), 1 << 34
    assert bound(machine_of(parse_target("cuda:sm_90a")), [launch], large) > 0
    others = [parse_target(t) for t in ("cuda:sm_100a", "cuda:sm_80", "opencl")]
    for target in (*others, cpu_target("x86-64-v4")):
        assert bound(machine_of(target), [launch], large) == 0


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "opencl", "metal", "hip:gfx942"])
def test_every_target_is_a_machine(target: str):
    assert seconds(machine_of(parse_target(target)), [Launch(UNIT, 100, 128)], 1 << 20) > 0
