"""`cp.profile()`: each launch in the block is timed, whichever way it took before."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def spin(out, times: int):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = out.flat[i]
        for _ in range(times):
            v = cp.sqrt(v * v + 1.0)
        out.flat[i] = v


@pytest.mark.parametrize(
    ("device", "times", "at_least"), [("cpu", 10_000_000, 10.0), ("interpreter", 3000, 0.1)]
)
def test_each_launch_is_timed(device: str, times: int, at_least: float):
    """`at_least` are milliseconds that no machine beats: square roots that wait for each other."""
    out = np.ones(4, np.float32)
    launch = spin.configure(device=device).over(out)
    for _ in range(6):
        launch(out, 1)  # by native code from the third on
    with cp.profile() as timings:
        start = perf_counter()
        launch(out, 1)
        between = perf_counter()
        launch(out, times)
        end = perf_counter()
    short, long = timings
    assert (short.kernel, short.device, len(timings)) == ("spin", device, 2)
    assert 0 < short.milliseconds <= (between - start) * 1e3
    assert at_least < long.milliseconds <= (end - between) * 1e3
    assert timings.milliseconds == short.milliseconds + long.milliseconds
    launch(out, 1)
    assert len(timings) == 2


def test_prebuilt_functions_bound_launches_and_graphs_are_seen():
    x = np.ones((8, 8), np.float32)
    out, graph = np.empty((8, 8), np.float32), cp.Graph()
    bound = spin.over(out).bind(out, 1)
    with graph:
        cp.kernels.softmax(x, out=out)
    for _ in range(6):
        cp.kernels.matmul(x, x, out=out)
        bound()
        graph.replay()
    with cp.profile() as timings:
        cp.kernels.matmul(x, x, out=out)
        bound()
        graph.replay()
    assert len(timings) == 3 and "spin" in {t.kernel for t in timings}


def test_the_table_has_a_row_for_each_kernel():
    out = np.ones(4, np.float32)
    with cp.profile() as timings:
        for times in (1, 2, 4_000_000):
            spin.over(out)(out, times)
        cp.kernels.sum(out)
    kernels = timings.by_kernel()
    assert [len(times) for times in kernels.values()] == [3, 1] and next(iter(kernels))[0] == "spin"
    head, first, second = str(timings).splitlines()
    assert head.split()[:3] == ["kernel", "device", "launches"]
    assert first.split()[:3] == ["spin", "cpu", "3"] and second.split()[2] == "1"
    with cp.profile() as nothing:
        pass
    assert str(nothing).split() == head.split() and nothing.milliseconds == 0
