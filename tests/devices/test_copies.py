"""`Array.copy_from` on every device, and pinned host arrays, to and from which it is asynchronous.

What a GPU would do when it likes to, the made-up driver does as late as it may.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from cubepy.array.order import Ordered
from cubepy.jit.staging import Staged
from cubepy.runtimes.cuda import driver as cuda_driver
from tests.devices import fake_cuda
from tests.devices.conftest import require
from tests.devices.kernels import increment, scale, spin
from tests.optional import require_package

SHAPES: list[tuple[int, ...]] = [(1003,), (7, 13), (1, 5, 1), (), (0, 3)]
N = 1 << 20


def random(shape: tuple[int, ...], dtype: Any = "f32", seed: int = 0) -> np.ndarray:
    held = np.random.default_rng(seed).normal(scale=50, size=shape)
    return cp.asarray(np.abs(held), dtype=dtype).numpy()


@pytest.fixture(params=["cpu", "made-up cuda:0", "opencl:0", "cuda:0", "metal:0"])
def place(request: pytest.FixtureRequest) -> str:
    """The name of a device."""
    if request.param.startswith("made-up"):
        request.getfixturevalue("driver")
        return "cuda:0"
    if request.param == "metal:0":
        request.getfixturevalue("fake")
    return require(request.param)


@pytest.fixture(params=["made-up cuda:0", "cuda:0"])
def gpu(request: pytest.FixtureRequest) -> str:
    """The name of a device that copies pinned memory while the host goes on."""
    if request.param.startswith("made-up"):
        request.getfixturevalue("driver")
        return "cuda:0"
    return require(request.param)


def later(
    driver: fake_cuda.Driver, x: cp.Array, do: Callable[[np.ndarray], Any], stream: cp.Stream | None
) -> None:
    """What a kernel on an array would do: `do` with its elements, in a stream, in order."""
    held = read_memory(x)
    queue = None if stream is None else stream.handle
    assert held is not None
    device: Any = cp.device("cuda:0")
    with Ordered(device, queue, (held,)) as used:
        seen = np.ctypeslib.as_array((ctypes.c_float * x.size).from_address(held.address))
        driver.enqueue(device.stream(used), lambda: do(seen))


def follow_orders(
    name: str, seed: int, add_one: Callable[[cp.Array, cp.Stream | None], None], scale: int = 1
) -> None:
    """Random copies and kernels in random streams end as if each had waited for the one before."""
    rng = np.random.default_rng(seed)
    size = 48 * scale
    streams = [None, *(cp.Stream(name) for _ in range(3))]
    places: list[dict[str, Any]] = [{"device": name}] * 2 + [{"pinned": True}] * 2 + [{}]
    arrays = [cp.full(size, k, **place) for k, place in enumerate(places)]
    wanted = [np.full(size, k, np.float32) for k in range(len(places))]
    for _ in range(40):
        a, b = rng.permutation(len(arrays))[:2]
        low, high, shift = np.sort(rng.integers(0, size + 1, 2)).tolist() + [rng.integers(3)]
        stream = streams[rng.integers(4)] if rng.random() < 0.8 else None
        match rng.integers(6):
            case 0 if a < 2:
                add_one(arrays[a], stream)
                wanted[a] += 1
            case 1 if a >= 2:
                increment.over(arrays[a])(arrays[a])
                wanted[a] += 1
            case 2:
                arrays[a] = cp.full(size, 7, **places[a])
                wanted[a][:] = 7
            case 3:
                np.testing.assert_array_equal(arrays[a].numpy(), wanted[a])
            case _:
                high = min(high, size - shift)
                low = min(low, high)
                source = arrays[b][low + shift : high + shift]
                arrays[a][low:high].copy_from(source, stream if min(a, b) < 2 else None)
                wanted[a][low:high] = wanted[b][low + shift : high + shift]
    for array, held in zip(arrays, wanted, strict=True):
        np.testing.assert_array_equal(array.numpy(), held)


# Every device


@pytest.mark.parametrize("dtype", ["f32", "u8", "bf16", "i64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(place: str, shape: tuple[int, ...], dtype: str):
    held = random(shape, dtype)
    there, between, back = (cp.empty(shape, dtype, d) for d in (place, place, "cpu"))
    assert there.copy_from(held) is None
    between.copy_from(there)
    back.copy_from(between)
    np.testing.assert_array_equal(back.numpy(), held)
    there.copy_from(back)
    np.testing.assert_array_equal(there.numpy(), held)


def test_parts(place: str):
    held, expected = random((9, 8)), random((9, 8), seed=1)
    there, back = cp.asarray(expected, device=place, copy=True), cp.zeros((2, 8))
    there[2:5].copy_from(held[4:7])
    there[7, 3:6].copy_from(held[0, 1:4])
    there[8].copy_from(there[2])
    expected[2:5], expected[7, 3:6], expected[8] = held[4:7], held[0, 1:4], held[4]
    np.testing.assert_array_equal(there.numpy(), expected)
    back[1].copy_from(there[7])
    np.testing.assert_array_equal(back.numpy(), [np.zeros(8), expected[7]])


def test_an_array_and_itself(place: str):
    held = random((12,))
    there = cp.asarray(held, device=place, copy=True)
    there.copy_from(there)
    there[2:7].copy_from(there[2:7])
    with pytest.raises(cp.LaunchError) as caught:
        there[1:].copy_from(there[:-1])
    assert str(caught.value) == (
        "E405: copy_from: `self` is written and overlaps `source`\n"
        "  help: pass the same array twice, or arrays that share no memory"
    )
    np.testing.assert_array_equal(there.numpy(), held)


def read_only() -> np.ndarray:
    held = np.zeros(4, np.float32)
    held.flags.writeable = False
    return held


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (
        lambda: [1.0] * 4,
        (
            "E401: copy_from: `source` is a list, which no kernel takes\n"
            "  help: pass a NumPy array, a CubePy array or another library's"
        ),
    ),
    "dtype": (
        lambda: np.zeros(4),
        (
            "E402: copy_from: `source` has dtype f64, expected f32\n"
            "  help: convert it with .astype(...)"
        ),
    ),
    "complex": (
        lambda: np.zeros(4, np.complex64),
        (
            "E402: copy_from: `source` has dtype complex64, expected a dtype of kernels\n"
            "  help: convert it with .astype(...)"
        ),
    ),
    "order of bytes": (
        lambda: np.zeros(4, ">f4"),
        (
            "E403: copy_from: `source` is big-endian (>f4)\n"
            "  help: convert it with .astype(source.dtype.newbyteorder('='))"
        ),
    ),
    "shape": (
        lambda: np.zeros((2, 2), np.float32),
        (
            "E422: no copy: `source` has shape (2, 2), but `self` has (4,)\n"
            "  help: reshape one, or copy a part of the other"
        ),
    ),
    "gaps": (
        lambda: np.zeros(8, np.float32)[::2],
        (
            "E422: no copy: `source` has gaps, or another order than its rows (strides (8,))\n"
            "  help: take a .copy() of `source` in its place"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_sources(place: str, name: str):
    make, message = REFUSED[name]
    there = cp.ones(4, device=place)
    with pytest.raises(cp.LaunchError) as caught:
        there.copy_from(make())
    assert str(caught.value) == message
    np.testing.assert_array_equal(there.numpy(), np.ones(4))


def test_refused_targets(place: str):
    with pytest.raises(cp.LaunchError) as caught:
        cp.ones((4, 4), device=place).reshape(2, 8)[:, 1:3].copy_from(cp.ones((2, 2)))
    assert str(caught.value) == (
        "E422: no copy: `self` has gaps, or another order than its rows (strides (32, 4))\n"
        "  help: take a .copy() of `self` in its place"
    )
    with pytest.raises(cp.LaunchError) as caught:
        cp.asarray(read_only()).copy_from(cp.ones(4, device=place))
    assert str(caught.value) == (
        "E404: copy_from: `self` is written but read-only\n"
        "  help: pass a writeable array; broadcast_to() and frombuffer() give read-only ones"
    )


def test_two_devices_are_refused(fake: Any, driver: fake_cuda.Driver):
    with pytest.raises(cp.LaunchError) as caught:
        cp.ones(4, device="cuda:0").copy_from(cp.ones(4, device="metal:0"))
    assert str(caught.value) == (
        "E418: copy_from: `source` is on metal:0, but `self` is on cuda:0\n"
        "  help: move it, as in cp.asarray(source, device='cuda:0')"
    )


def test_streams_where_there_are_none():
    with pytest.raises(cp.UnsupportedError) as caught:
        cp.ones(4).copy_from(cp.zeros(4), stream=7)
    assert str(caught.value) == (
        "E310: Stream is not available on cpu: its launches return when they are done, or share "
        "one queue"
    )


def test_streams_of_other_devices(driver: fake_cuda.Driver):
    stream = cp.Stream("cuda:0")
    stream.device = "cuda:1"
    with pytest.raises(cp.LaunchError) as caught:
        cp.ones(4, device="cuda:0").copy_from(cp.zeros(4), stream=stream)
    assert str(caught.value) == (
        "E422: no copy: the stream is cuda:1's, but the copy is on cuda:0\n"
        "  help: pass a cp.Stream('cuda:0')"
    )


def test_copies_follow_launches(device: str):
    x, back = cp.zeros(N, device=device), cp.empty(N)
    for _ in range(5):
        increment.over(x)(x)
    back.copy_from(x)
    np.testing.assert_array_equal(back.numpy(), np.full(N, 5, np.float32))
    x.copy_from(back)
    increment.over(x)(x)
    np.testing.assert_array_equal(x.numpy(), np.full(N, 6, np.float32))


# Pinned host arrays


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pinned_there_and_back(gpu: str, shape: tuple[int, ...], in_stream: bool):
    held, stream = random(shape), cp.Stream(gpu) if in_stream else None
    pinned, back = (cp.empty(shape, pinned=True) for _ in range(2))
    there, between = (cp.empty(shape, device=gpu) for _ in range(2))
    assert pinned.is_pinned and pinned.device == "cpu" and not there.is_pinned
    pinned.numpy()[...] = held
    there.copy_from(pinned, stream)
    between.copy_from(there, stream)
    back.copy_from(between, stream)
    np.testing.assert_array_equal(back.numpy(), held)
    np.testing.assert_array_equal(between.numpy(), held)


def test_views_of_pinned_arrays(gpu: str):
    held, there = random((6, 8)), cp.zeros((6, 8), device=gpu)
    pinned = cp.full((6, 8), 9, pinned=True)
    assert pinned[1:, ::2].is_pinned and pinned.reshape(-1)[5:].is_pinned
    pinned[2:4].copy_from(held[:2])
    there[1:3].copy_from(pinned[2:4])
    there[5, 1:4].copy_from(pinned.reshape(-1)[21:24])
    np.testing.assert_array_equal(there[1:3].numpy(), held[:2])
    np.testing.assert_array_equal(there[5].numpy(), [0, *held[0, 5:8], 0, 0, 0, 0])
    pinned.reshape(-1)[3:11].copy_from(there[2])
    np.testing.assert_array_equal(pinned.numpy().reshape(-1)[3:11], held[1])
    np.testing.assert_array_equal(pinned[5, ::2].numpy(), np.full(4, 9))


def test_values_of_pinned_arrays(gpu: str):
    for made, value in ((cp.zeros, 0), (cp.ones, 1)):
        np.testing.assert_array_equal(
            made((3, 2), "i16", pinned=True).numpy(), np.full((3, 2), value)
        )
    made = cp.full(3, 2.5, "bf16", "cpu", pinned=True)
    np.testing.assert_array_equal(made.numpy().astype(np.float32), np.full(3, 2.5))
    assert made.copy().is_pinned is False and made.dtype == cp.bf16
    assert cp.asarray(made) is made and np.asarray(made).base is not None


def test_reading_a_pinned_array_waits(gpu: str):
    there, pinned = cp.zeros(N, device=gpu), cp.empty(N, pinned=True)
    for k in range(8):
        stream = cp.Stream(gpu)
        there.copy_from(np.full(N, k, np.float32))
        pinned.copy_from(there, stream)
        assert (pinned[N // 2 :].numpy() == k).all(), "the copy was not waited for"


def test_kernels_on_the_host_wait_for_pinned_arrays(gpu: str):
    there, pinned, out = cp.full(N, 3, device=gpu), cp.zeros(N, pinned=True), cp.zeros(N)
    pinned.copy_from(there, cp.Stream(gpu))
    scale.over(out)(pinned, 2.0, out)
    np.testing.assert_array_equal(out.numpy(), np.full(N, 6))
    there.copy_from(pinned, cp.Stream(gpu))
    increment.over(pinned)(pinned)  # may not overtake the copy
    np.testing.assert_array_equal(there.numpy(), np.full(N, 3))
    out.copy_from(pinned)
    np.testing.assert_array_equal(out.numpy(), np.full(N, 4))


def test_streams_come_after_each_other(gpu: str):
    one, two = cp.Stream(gpu), cp.Stream(gpu)
    first, second = cp.zeros(N, pinned=True), cp.empty(N, pinned=True)
    x, y = cp.zeros(N, device=gpu), cp.zeros(N, device=gpu)
    for k in range(6):
        first.numpy()[...] = k
        x.copy_from(first, one)
        y.copy_from(x, two)
        second.copy_from(y)
        assert (second.numpy() == k).all()


def test_arrays_may_die_under_a_copy(gpu: str):
    out, last = cp.empty(N, device=gpu), cp.empty(N, pinned=True)
    for k in range(8):
        pinned = cp.full(N, k, pinned=True)
        between = cp.empty(N, device=gpu)
        between.copy_from(pinned, cp.Stream(gpu))
        out.copy_from(between, cp.Stream(gpu))
        del pinned, between
    last.copy_from(out)
    view = last.numpy()[1:]
    del last, out
    np.testing.assert_array_equal(view, np.full(N - 1, 7))


def test_pinned_arrays_are_the_hosts(gpu: str):
    with pytest.raises(cp.LaunchError) as caught:
        cp.empty(4, device=gpu, pinned=True)
    assert str(caught.value) == (
        "E420: pinned cannot be True: arrays on cuda:0 are not in the host's memory"
    )


def test_no_room_for_pinned_arrays(gpu: str):
    with pytest.raises(cp.DeviceError) as caught:
        cp.empty(1 << 45, pinned=True)
    assert str(caught.value) == (
        "E504: out of memory: 140737488355328 bytes asked of pinned host memory\n"
        "  help: free arrays, or call cp.release_memory()"
    )


def test_pinned_arrays_need_cuda(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        raise ImportError(name)

    with fake_cuda.installed():
        monkeypatch.setattr(cuda_driver, "import_module", missing)
        with pytest.raises(cp.UnsupportedError) as caught:
            cp.zeros(4, pinned=True)
        monkeypatch.undo()
    assert str(caught.value) == (
        "E310: pinned memory is not available on cpu: cuda: cuda-bindings is missing; "
        "pip install 'cubepy-jit[cuda]'"
    )


def test_pinned_arrays_on_other_devices(gpu: str, fake: Any):
    """Devices without queues copy at once, after what CUDA does."""
    there, pinned = cp.full(N, 5, device=gpu), cp.zeros(N, pinned=True)
    other = cp.empty(N, device="metal:0")
    pinned.copy_from(there, cp.Stream(gpu))
    other.copy_from(pinned)
    increment.over(other)(other)
    pinned.copy_from(other)
    np.testing.assert_array_equal(pinned.numpy(), np.full(N, 6))


# The order of the driver's work


def test_pinned_copies_do_not_wait(driver: fake_cuda.Driver):
    there, pinned = cp.zeros(64, device="cuda:0"), cp.ones(64, pinned=True)
    cp.synchronize("cuda:0")
    driver.calls.clear()
    there.copy_from(pinned)
    pinned.copy_from(there)
    there.copy_from(pinned, cp.Stream("cuda:0"))
    assert driver.calls == ["copy"] * 3 and driver.under_way() >= 3
    there.copy_from(np.ones(64, np.float32))
    assert driver.calls[3:] == ["upload"] and driver.under_way() == 0


@pytest.mark.parametrize("is_own", [False, True])
def test_a_copy_in_a_stream_waits_for_no_other(driver: fake_cuda.Driver, is_own: bool):
    busy, there = cp.zeros(8, device="cuda:0"), cp.zeros(8, device="cuda:0")
    first, second = None if is_own else cp.Stream("cuda:0"), cp.Stream("cuda:0")
    there.copy_from(cp.ones(8, pinned=True), second)
    ran: list[str] = []
    later(driver, busy, lambda x: ran.append("kernel"), first)
    there.copy_from(cp.ones(8, pinned=True), second)
    second.synchronize()
    assert not ran
    cp.synchronize("cuda:0")
    assert ran


def test_kernels_and_copies_are_in_order(driver: fake_cuda.Driver):
    stream, other = cp.Stream("cuda:0"), cp.Stream("cuda:0")
    pinned, back = cp.ones(8, pinned=True), cp.zeros(8, pinned=True)
    there = cp.empty(8, device="cuda:0")
    there.copy_from(pinned, stream)
    later(driver, there, lambda x: np.multiply(x, 6, out=x), other)
    back.copy_from(there)
    later(driver, there, lambda x: x.fill(0), stream)
    assert (back.numpy() == 6).all() and (there.numpy() == 0).all()


def test_pinned_memory_is_freed_once(driver: fake_cuda.Driver):
    pinned = cp.ones(8, pinned=True)
    there = cp.empty(8, device="cuda:0")
    view = pinned[2:].numpy()
    there.copy_from(pinned)
    del pinned
    assert len(driver.pinned) == 1 and (view == 1).all()
    del view
    assert not driver.pinned
    assert (there.numpy() == 1).all()


def test_staged_launches_wait_for_pinned_arrays(driver: fake_cuda.Driver):
    there, pinned = cp.full(8, 4, device="cuda:0"), cp.zeros(8, pinned=True)
    pinned.copy_from(there, cp.Stream("cuda:0"))
    held = read_memory(pinned)
    assert held is not None
    with Staged(cp.device("cuda:0"), {"x": held}, ["x"]) as staged:
        copy = (ctypes.c_float * 8).from_address(staged.addresses["x"])
        assert list(copy) == [4] * 8


@pytest.mark.parametrize("seed", range(16))
def test_random_orders(driver: fake_cuda.Driver, seed: int):
    def add_one(x: cp.Array, stream: cp.Stream | None) -> None:
        later(driver, x, lambda held: np.add(held, 1, out=held), stream)

    follow_orders("cuda:0", seed, add_one)


# A GPU at work


@pytest.mark.parametrize("seed", range(20))
def test_random_orders_on_a_gpu(cuda: str, seed: int):
    def add_one(x: cp.Array, stream: cp.Stream | None) -> None:
        increment.configure(stream=stream).over(x)(x)

    follow_orders(cuda, seed, add_one, 1 << 14)


@pytest.mark.optional("torch")
def test_foreign_arrays_are_copied_in_their_stream(cuda: str):
    torch = require_package("torch")
    pinned, there = cp.empty(N, pinned=True), cp.empty(N, device=cuda)
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(N, device="cuda")
        for k in range(10):
            torch.cuda._sleep(2_000_000)
            x += 1
            pinned.copy_from(x)
            there.copy_from(x, cp.Stream(cuda))
            x *= 1.0
            assert (pinned.numpy() == k + 1).all() and (there.numpy() == k + 1).all()


def test_copies_run_beside_kernels(cuda: str):
    busy, free = cp.Stream(cuda), cp.Stream(cuda)
    start, ended, copied = (cp.Event(cuda) for _ in range(3))
    x, there, pinned = cp.ones(N, device=cuda), cp.zeros(N, device=cuda), cp.ones(N, pinned=True)
    spin.configure(stream=busy).over(x)(x, 1)
    there.copy_from(pinned, free)
    cp.synchronize(cuda)
    start.record(busy)
    spin.configure(stream=busy).over(x)(x, 200_000)
    ended.record(busy)
    begun = time.perf_counter()
    there.copy_from(pinned, free)
    copied.record(free)
    took = 1000 * (time.perf_counter() - begun)
    cp.synchronize(cuda)
    assert took < ended.elapsed(start), "the host waited"
    assert copied.elapsed(start) < ended.elapsed(start), "the copy waited for the kernel"


def test_copies_wait_for_kernels_on_the_same_array(cuda: str):
    stream, other = cp.Stream(cuda), cp.Stream(cuda)
    x, pinned = cp.ones(N, device=cuda), cp.zeros(N, pinned=True)
    for k in range(5):
        spin.configure(stream=stream).over(x)(x, 20_000)
        pinned.copy_from(x, other)
        assert (pinned.numpy() == k + 2).all()
        increment.over(x)(x)
        x.copy_from(pinned, stream)
    assert (x.numpy() == 6).all()


def test_staged_launches_of_pinned_arrays(cuda: str):
    x, pinned = cp.full(N, 4, device=cuda), cp.zeros(N, pinned=True)
    pinned.copy_from(x, cp.Stream(cuda))
    increment.configure(device=cuda).over(pinned)(pinned)
    assert (pinned.numpy() == 5).all()
