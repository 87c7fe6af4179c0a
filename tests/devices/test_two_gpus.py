"""Two GPUs in one process: launches are where their arrays are, whichever GPU is current."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.conftest import require
from tests.devices.kernels import spin
from tests.optional import require_package

torch = require_package("torch")
pytestmark = pytest.mark.usefixtures("both")
NAMES = ("cuda:0", "cuda:1")
RNG = np.random.default_rng(2)
BUSY = 20_000
"""Turns of `spin` that later work would overtake."""


@cp.cube
def axpy(x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], a: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@pytest.fixture(scope="module")
def both() -> tuple[str, str]:
    """The names of two GPUs."""
    return require("cuda:0"), require("cuda:1")


def turns() -> Iterator[tuple[int, int]]:
    """A current GPU and the GPU of arrays, each beside each, often enough for native launches."""
    for current in (0, 1, 0, 1):
        for gpu in (0, 1, 1, 0, 0):
            yield current, gpu


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_own_arrays():
    for gpu in (0, 1, 1, 0, 0, 1) * 3:
        x, y = random(777), random(777)
        a, b = (cp.asarray(v, device=NAMES[gpu]) for v in (x, y))
        out = cp.full(777, np.nan, dtype="f32", device=NAMES[gpu])
        axpy.over(out)(a, b, out, 2.0)
        assert out.device == NAMES[gpu]
        np.testing.assert_allclose(out.numpy(), x * 2 + y, rtol=1e-6)


def test_tensors_whichever_gpu_is_current():
    for current, gpu in turns():
        with torch.cuda.device(current):
            x, y = (torch.randn(500, device=NAMES[gpu]) for _ in range(2))
            out = torch.full_like(x, torch.nan)
            axpy.over(out)(x, y, out, 3.0)
            total = cp.kernels.sum(x)
            assert torch.cuda.current_device() == current
            assert total.device == x.device
            assert torch.allclose(out, x * 3 + y, rtol=1e-5, atol=1e-6)
            assert torch.allclose(total, x.sum(), rtol=1e-4, atol=1e-4)


def test_bound_launches():
    bound, outs = [], []
    for name in NAMES:
        x, y = torch.randn(300, device=name), torch.randn(300, device=name)
        out = torch.empty_like(x)
        bound.append(axpy.over(out).bind(x, y, out, 2.0))
        outs.append((x, y, out))
    for current in (1, 0, 1, 0):
        with torch.cuda.device(current):
            for launch, (x, y, out) in zip(bound, outs, strict=True):
                out.fill_(torch.nan)
                launch()
                assert torch.allclose(out, x * 2 + y, rtol=1e-5, atol=1e-6)
            assert torch.cuda.current_device() == current


def test_streams_of_the_gpu_of_the_tensors():
    """Work is in torch's current stream of the tensors' GPU while the other one is current."""
    x = torch.zeros(1 << 14, device="cuda:1")
    torch.cuda.synchronize(1)
    side = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(side):  # makes GPU 1 current
        for k in range(8):
            with torch.cuda.device(k % 2):
                spin.over(x)(x, BUSY)
        copied = x.clone()
    side.synchronize()
    assert (copied == x).all() and (x == x[0]).all() and float(x[0]) != 0


def test_arrays_on_two_gpus_are_refused():
    x, y = (torch.ones(64, device=name) for name in NAMES)
    for _ in range(4):
        axpy.over(x)(x, x, torch.empty_like(x), 1.0)
        for arguments in ((x, y, x), (y, y, x), (x, x, y)):
            with pytest.raises(cp.LaunchError, match="cuda:"):
                axpy.over(64)(*arguments, 1.0)
        with pytest.raises(cp.LaunchError, match="cuda:"):
            cp.kernels.matmul(x[None], y[:, None])
        with pytest.raises(cp.LaunchError, match="cuda:"):
            cp.kernels.sum(x, out=torch.empty((), device="cuda:1"))
    assert (x == 1).all() and (y == 1).all()


def test_copies_wait_for_the_work_before():
    values = random(1 << 14)
    for source, target in (NAMES, NAMES[::-1]) * 3:
        x = cp.asarray(values, device=source)
        spin.over(x)(x, BUSY)
        y = x.to(target)
        spin.over(x)(x, BUSY)  # behind the copy
        z = y.to(source)
        spin.over(y)(y, BUSY)
        expected = z.numpy()
        assert y.device == target and z.device == source
        np.testing.assert_allclose(expected, np.abs(values) + 1, rtol=1e-6)
        np.testing.assert_allclose(x.numpy(), expected + 1, rtol=1e-6)
        np.testing.assert_allclose(y.numpy(), expected + 1, rtol=1e-6)


def test_memory_that_dies_while_the_other_gpu_works():
    kept = [cp.asarray(np.full(1 << 14, k, np.float32), device=NAMES[k]) for k in (0, 1)]
    for turn in range(40):
        for name, x in zip(NAMES, kept, strict=True):
            spin.over(x)(x, 500)
            short_lived = cp.full(1 << 14, np.nan, dtype="f32", device=name)
            spin.over(short_lived)(short_lived, 500)
            del short_lived
        with torch.cuda.device(turn % 2):
            torch.empty(1 << 14, device=NAMES[turn % 2]).fill_(torch.nan)
    for k, x in enumerate(kept):
        assert (x.numpy() == k + 40).all()


MATRIX = random(256, 192)
IMAGES = random(2, 64, 16, 16)
HEADS = random(1, 2, 96, 64)
CALLS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "matmul": lambda put: (
        cp.kernels.matmul(put(MATRIX).half(), put(MATRIX).half().T),
        put(MATRIX).half() @ put(MATRIX).half().T,
    ),
    "one row": lambda put: (
        cp.kernels.matmul(put(MATRIX)[:1].bfloat16(), put(MATRIX).bfloat16().T),
        put(MATRIX)[:1].bfloat16() @ put(MATRIX).bfloat16().T,
    ),
    "softmax": lambda put: (cp.kernels.softmax(put(MATRIX)), torch.softmax(put(MATRIX), -1)),
    "layer norm": lambda put: (
        cp.kernels.layer_norm(put(MATRIX), 192),
        torch.nn.functional.layer_norm(put(MATRIX), (192,)),
    ),
    "pooling": lambda put: (
        cp.kernels.max_pool2d(put(IMAGES), 3, 2, 1),
        torch.nn.functional.max_pool2d(put(IMAGES), 3, 2, 1),
    ),
    "convolution": lambda put: (
        cp.kernels.conv2d(put(IMAGES).half(), put(IMAGES[:, :, :3, :3]).half(), padding=1),
        torch.conv2d(put(IMAGES).half(), put(IMAGES[:, :, :3, :3]).half(), padding=1),
    ),
    "attention": lambda put: (
        cp.kernels.attention(put(HEADS).half(), put(HEADS).half(), put(HEADS).half(), causal=True),
        torch.nn.functional.scaled_dot_product_attention(
            put(HEADS).half(), put(HEADS).half(), put(HEADS).half(), is_causal=True
        ),
    ),
    "sort": lambda put: (cp.kernels.sort(put(MATRIX))[0], torch.sort(put(MATRIX)).values),
}


@pytest.mark.parametrize("name", CALLS)
def test_prebuilt_functions(name: str):
    for current, gpu in turns():
        with torch.cuda.device(current):
            ours, theirs = CALLS[name](lambda v, gpu=gpu: torch.from_numpy(v).to(NAMES[gpu]))
            assert ours.device == theirs.device == torch.device(NAMES[gpu])
            assert torch.cuda.current_device() == current
            assert torch.allclose(ours.float(), theirs.float(), rtol=2e-2, atol=2e-2)


def test_graphs_and_events_of_each_gpu():
    for name in NAMES:
        x, y = cp.asarray(random(400), device=name), cp.asarray(random(400), device=name)
        out, graph = cp.empty(400, device=name), cp.Graph()
        with graph:
            axpy.over(out)(x, y, out, 2.0)
            axpy.over(out)(out, y, out, 2.0)
        begin, end = cp.Event(name), cp.Event(name)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        assert begin.elapsed(end) > 0 or end.elapsed(begin) > 0
        expected = (x.numpy() * 2 + y.numpy()) * 2 + y.numpy()
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_profiles_of_both():
    arrays = [torch.ones(1 << 14, device=name) for name in NAMES]
    with cp.profile() as timings:
        for x in arrays:
            spin.over(x)(x, BUSY)
    assert [t.device for t in timings] == list(NAMES)
    assert all(t.milliseconds > 0.05 for t in timings)


def test_a_thread_for_each_gpu():
    wrong: list[Any] = []

    def work(gpu: int) -> None:
        try:
            x, y = torch.randn(2000, device=NAMES[gpu]), torch.randn(2000, device=NAMES[gpu])
            out = torch.empty_like(x)
            own = cp.zeros(100, dtype="f32", device=NAMES[gpu])
            one = cp.ones(100, dtype="f32", device=NAMES[gpu])
            for k in range(2000):
                axpy.over(out)(x, y, out, float(k))
                axpy.over(own)(own, one, own, 1.0)
                if k % 100 == 0 and not torch.allclose(out, x * k + y, rtol=1e-4, atol=1e-3):
                    wrong.append((gpu, k))
            if not (own.numpy() == 2000).all():
                wrong.append((gpu, own.numpy()))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_host_arrays_are_copied_to_the_gpu_that_is_asked_for():
    x, y, out = random(300), random(300), np.full(300, np.nan, np.float32)
    for name in (*NAMES, *NAMES):
        out.fill(np.nan)
        axpy.configure(device=name).over(out)(x, y, out, 2.0)
        np.testing.assert_allclose(out, x * 2 + y, rtol=1e-6)
