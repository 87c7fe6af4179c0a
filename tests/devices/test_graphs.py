"""Graphs and profiles on devices with queues of their own."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from tests.devices import fake_cuda
from tests.devices.kernels import increment, scale
from tests.devices.test_foreign_gpus import do_move, move

N = 16


def test_replays_are_in_the_order_of_the_device(device: str):
    x, out = cp.full(N, 3, device=device), cp.zeros(N, device=device)
    graph = cp.Graph()
    with graph:
        increment.over(x)(x)
        scale.over(out)(x, 2.0, out)
        out[:4].copy_from(x[:4])
    for k in range(1, 6):
        graph.replay()
        wanted = np.full(N, 2 * (3 + k))
        wanted[:4] = 3 + k
        np.testing.assert_array_equal(out.numpy(), wanted)
    with cp.profile() as timings:
        graph.replay()
    assert [(t.kernel, t.device) for t in timings] == [("increment", device), ("scale", device)]
    assert all(t.milliseconds > 0 for t in timings)


def test_prebuilt_functions(device: str):
    values = np.random.default_rng().integers(-9, 9, (5, 7)).astype(np.float32)
    x = cp.asarray(values, device=device)
    graph = cp.Graph()
    with graph:
        total = cp.kernels.sum(x, 1)
        ordered, _ = cp.kernels.sort(x)
    for _ in range(4):
        values[:] = values[::-1] + 1
        x.copy_from(values)
        graph.replay()
        np.testing.assert_array_equal(total.numpy(), values.sum(1))
        np.testing.assert_array_equal(ordered.numpy(), np.sort(values))
    with cp.profile() as timings:
        graph.replay()
    assert len(timings) >= 2


@pytest.mark.usefixtures("nvrtc")
def test_events_time_launches_in_a_stream(driver: fake_cuda.Driver):
    driver.kernels["move"], driver.parameters["move"] = do_move, 2
    x, out = cp.full(N, 3, device="cuda:0"), cp.zeros(N, device="cuda:0")
    launch = move.configure(stream=cp.Stream("cuda:0")).over(N)
    with cp.profile() as timings:
        for _ in range(3):
            launch(x, out)
    assert [(t.kernel, t.milliseconds) for t in timings] == [("move", 0.25)] * 3
    assert (out.numpy() == 7).all()
