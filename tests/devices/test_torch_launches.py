"""Launches on torch's tensors on a GPU: native ones, in the order of torch's streams."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
from cubepy.jit.programs import Step
from cubepy.jit.tables import native_executor
from tests.devices.kernels import spin
from tests.optional import require_package

torch = require_package("torch")
pytestmark = pytest.mark.usefixtures("cuda")


@cp.cube
def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@cp.cube
def add_one(x: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        x.flat[i] += 1.0


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often Python prepared a launch; the test is skipped where native code launches none."""
    executor, inner, found = native_executor(), Launcher._prepared, [0]
    if executor is None or not executor.reads_tensors(torch.Tensor):
        pytest.skip("no native launches on tensors here")

    def counting(launcher: Any, args: Any, kwargs: Any) -> Any:
        found[0] += 1
        return inner(launcher, args, kwargs)

    monkeypatch.setattr(Launcher, "_prepared", counting)
    return found


def test_shapes_and_layouts(count: list[int]):
    def launches(sizes: range) -> None:
        for n in sizes:
            x, y = torch.randn(n, 7, device="cuda"), torch.randn(7, n, device="cuda").T
            out = torch.full((n, 14), torch.nan, device="cuda")[:, ::2]
            axpy.over(out)(x, y, out, 2.5)
            assert torch.allclose(out, x * 2.5 + y, rtol=1e-5, atol=1e-5)
            axpy.over(out)(out, out, out, n)
            assert torch.allclose(out, (x * 2.5 + y) * (n + 1), rtol=1e-5, atol=1e-3)

    launches(range(2, 10))
    before = count[0]
    launches(range(10, 60))
    assert count[0] == before


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int32", "uint8"])
def test_types(name: str):
    x = torch.arange(100, device="cuda").to(getattr(torch, name))
    for _ in range(4):
        out = torch.zeros_like(x)
        axpy.over(100)(x, x, out, 1)
        assert torch.equal(out, x + x)


def test_work_is_in_the_current_stream(count: list[int]):
    x, streams = torch.zeros(1 << 16, device="cuda"), [torch.cuda.Stream() for _ in range(3)]
    for _ in range(3):
        add_one.over(x)(x)
        spin.over(x)(x, 1)
    torch.cuda.synchronize()
    before, expected = count[0], float(x[0]) + 30
    for k in range(10):
        with torch.cuda.stream(streams[k % 3]):
            streams[k % 3].wait_stream(streams[k % 3 - 1])
            spin.over(x)(x, 20_000)
            add_one.over(x)(x)
            x += 1
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(x, torch.full_like(x, expected))
    assert count[0] == before


def test_graphs_record_launches(count: list[int]):
    x = torch.zeros(1000, device="cuda")
    for _ in range(3):
        add_one.over(x)(x)
    before, graph = count[0], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            add_one.over(x)(x)
    x.zero_()
    graph.replay()
    graph.replay()
    assert torch.equal(x, torch.full_like(x, 10))
    assert count[0] == before


def test_threads(count: list[int]):
    tensors = [torch.zeros(100 + k, device="cuda") for k in range(8)]
    for x in tensors * 3:
        add_one.over(x)(x)
    torch.cuda.synchronize()
    before = count[0]

    def work(x: Any) -> None:  # a thread has no context of its own before it uses torch
        for _ in range(500):
            add_one.over(x)(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert all(torch.equal(x, torch.full_like(x, 503)) for x in tensors)
    assert count[0] == before


def test_queues_that_are_full(count: list[int]):
    x = torch.zeros(1 << 16, device="cuda")
    for n in (1, 1, 1, 100_000):
        spin.over(x)(x, n)
    for _ in range(3000):
        add_one.over(x)(x)
    assert torch.equal(x, torch.full_like(x, 3004))


@cp.cube
def copy_boxes(x: cp.cuda.TensorMap, out: cp.Tensor[cp.f32]):
    tile, barrier = cp.shared(x.box, cp.f32), cp.shared(1, cp.u64)
    rows, columns = x.box
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        cp.cuda.tensor_load(tile, (0, 0), x, (cp.CUBE_POS * rows, 0), barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    for k in range(cp.UNIT_POS, rows * columns, cp.CUBE_DIM):
        out.flat[cp.CUBE_POS * rows * columns + k] = tile.flat[k]


def test_tensor_maps(count: list[int]):
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("no copy engine here")
    for n in range(12):
        before = count[0]
        for rows, step in ((32, 1), (64, 1), (32, 2)):
            x = torch.randn(rows * step, 64, device="cuda")[::step]
            out = torch.full((rows, 64), torch.nan, device="cuda")
            copy_boxes[rows // 8, 128](cp.cuda.tensor_map(x, (8, 64)), out)
            assert torch.equal(x, out)
        assert n < 2 or count[0] == before


@pytest.mark.parametrize("size", [64, 512])
def test_prebuilt_functions(size: int, monkeypatch: pytest.MonkeyPatch):
    kernels, streams = cp.kernels, [torch.cuda.Stream() for _ in range(2)]
    for n in range(8):
        if n == 4:
            monkeypatch.setattr(Step, "run", None)
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        with torch.cuda.stream(streams[n % 2]):
            streams[n % 2].wait_stream(torch.cuda.default_stream())
            spin.over(1 << 16)(torch.zeros(1 << 16, device="cuda"), 20_000)
            a += 1
            found, out = kernels.matmul(a, b), torch.empty_like(a)
            kernels.matmul(a, b, out=out)
            soft, total = kernels.softmax(found.float()), kernels.sum(a, 0)
        torch.cuda.synchronize()
        torch.testing.assert_close(found, a @ b, rtol=1e-2, atol=1e-1)
        assert torch.equal(found, out)
        torch.testing.assert_close(soft, torch.softmax(found.float(), -1))
        torch.testing.assert_close(total, a.sum(0), rtol=1e-2, atol=1e-1)
