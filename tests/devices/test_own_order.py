"""Native launches on CubePy's own arrays of a GPU: in the device's own queue, in the order of all
other work on them. The driver is made up, and runs only what somebody waits for."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import time
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.array import Array
from cubepy.jit.kernel import CubeKernel
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.tables import Memo, Order
from cubepy.runtimes.registry import find_device
from tests.devices import fake_cuda

pytestmark = [
    pytest.mark.skipif(native_executor() is None, reason="no native launches here"),
    pytest.mark.usefixtures("nvrtc"),
]
N = 16
PLACE = "cuda:0"


def move(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2 + 1


def fill(out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = out[i] + 1


def at(address: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))


def do_move(x: int, out: int) -> None:
    at(out)[:] = at(x) * 2 + 1


def do_fill(out: int) -> None:
    at(out)[:] += 1


@pytest.fixture
def kernels(driver: fake_cuda.Driver) -> tuple[CubeKernel, CubeKernel]:
    """`move` and `fill`, which Python's functions stand for."""
    driver.kernels |= {"move": do_move, "fill": do_fill}
    driver.parameters |= {"move": 2, "fill": 1}
    return cp.cube(move), cp.cube(fill)


def made(value: float = 0) -> Array:
    return cp.asarray(np.full(N, value, np.float32), device=PLACE)


def warmed(kernels: tuple[CubeKernel, CubeKernel]) -> None:
    x, y = made(), made()
    for _ in range(3):
        kernels[0].over(N)(x, y)
        kernels[1].over(N)(x)


def test_they_are_launched_natively(driver: fake_cuda.Driver, kernels: Any):
    warmed(kernels)
    native, stream = driver.native, driver.launched[-1][1]
    x, out = made(3), made()
    bound = kernels[0].over(N).bind(x, out)
    for _ in range(3):
        bound()
    assert driver.native == native + 2
    np.testing.assert_array_equal(out.numpy(), np.full(N, 7))
    driver.kernels.clear()
    for n in range(1, 9):
        views = x[:n], out[N - n :]
        for _ in range(2):
            kernels[0].over(n)(*views)
            kernels[0].over(views[1])(*views)
            assert driver.launches[-1].words == tuple(v._memory.address for v in views)
    assert driver.native >= native + 2 + 16
    assert {launch.stream for launch in driver.launches} == {stream} != {0}


def test_what_goes_through_python(driver: fake_cuda.Driver, kernels: Any):
    move, _ = kernels
    warmed(kernels)
    native = driver.native
    x, out, stream = made(1), made(), cp.Stream(device=PLACE)
    move.configure(stream=stream).over(N)(x, out)
    assert driver.native == native
    move.over(N)(x, out)  # comes after the stream
    assert driver.native == native
    move.over(N)(x, out)
    assert driver.native == native + 1
    assert out.__cuda_array_interface__["stream"] == 1
    for _ in range(3):
        move.over(N)(x, out)
        assert driver.launched[-1][1] == 0
    assert driver.native == native + 1
    for wrong, code in (((out, x[:-1]), "E401"), ((x[1:], x[:-1]), "E405"), ((x,), "E406")):
        if code != "E401":
            with pytest.raises(cp.LaunchError, match=code):
                move.over(N)(*wrong)


def test_another_context(driver: fake_cuda.Driver, kernels: Any):
    warmed(kernels)
    x, native = made(), driver.native
    for context, device in ((0, 0), (98, 1), (99, 0)):
        driver.contexts.setdefault(context, (device, context))
        driver.context = context
        kernels[1].over(N)(x)
        assert driver.context == context
    driver.context = fake_cuda.PRIMARY
    assert driver.native == native + 3
    np.testing.assert_array_equal(x.numpy(), np.full(N, 3))


def test_what_the_driver_refuses(driver: fake_cuda.Driver, kernels: Any):
    warmed(kernels)
    x, device = made(), cp.device(PLACE)
    driver.refused = fake_cuda.Result.CUDA_ERROR_ILLEGAL_ADDRESS
    native: Any = device
    before = driver.native
    with pytest.raises(cp.DeviceError, match=r"E509.*fill"):
        kernels[1].over(N)(x)
    driver.refused = None
    assert driver.native == before + 1 and native.own._words[Order.UNDER_WAY] == 0


def test_arrays_of_one_device_only(driver: fake_cuda.Driver, kernels: Any):
    warmed(kernels)
    x, out = made(), made()
    native = driver.native
    x._memory.owner.queues = object()  # as of another GPU
    for _ in range(3):
        kernels[0].over(N)(x, out)
    x._memory.owner.queues = out._memory.owner.queues
    assert driver.native == native


def test_pinned_copies(driver: fake_cuda.Driver, kernels: Any):
    """A copy to the host is behind native launches, those behind it do not change what it reads."""
    warmed(kernels)
    x, held = made(), cp.empty(N, cp.f32, device="cpu", pinned=True)
    for n in range(1, 6):
        for _ in range(3):
            kernels[1].over(N)(x)
        held.copy_from(x)
        kernels[1].over(N)(x)
        np.testing.assert_array_equal(held.numpy(), np.full(N, 4 * n - 1))


@pytest.mark.parametrize("seed", range(12))
def test_any_order(driver: fake_cuda.Driver, kernels: Any, seed: int):
    """Launches natively and in streams, copies, reads and frees, beside arrays of the host."""
    warmed(kernels)
    choose, native = random.Random(seed), driver.native
    streams = [None, None, None, *(cp.Stream(device=PLACE) for _ in range(2))]
    arrays = [(made(k), np.full(N, k, np.float32)) for k in range(4)]
    pinned = [cp.empty(N, cp.f32, device="cpu", pinned=True) for _ in range(2)]
    copied: dict[int, np.ndarray] = {}
    bounds: dict[tuple[int, int], Any] = {}
    remembered = 0
    for _ in range(150):
        (x, wanted_x), (y, wanted_y) = choose.sample(arrays, 2)
        what, stream = choose.randrange(12), choose.choice(streams)
        move, fill = (k if stream is None else k.configure(stream=stream) for k in kernels)
        if what < 5:
            if stream is None and choose.randrange(2):
                bound = bounds.setdefault((id(x), id(y)), move.over(N).bind(x, y))
                for _ in range(3):  # with what it wrote before
                    bound()
                memo = getattr(bound, "_memo", None)
                remembered += memo is not None and memo[Memo.PLAN] != 0
            else:
                move.over(N)(x, y)
            wanted_y[:] = wanted_x * 2 + 1
            fill.over(N)(y)
            wanted_y += 1
            if wanted_x.max() > 1000:
                y.copy_from(np.zeros(N, np.float32))
                wanted_y[:] = 0
        elif what < 7:
            fill.over(N)(x)
            wanted_x += 1
        elif what == 7:
            y.copy_from(x, stream=stream)
            wanted_y[:] = wanted_x
        elif what == 8:
            k = choose.randrange(2)
            pinned[k].copy_from(x, stream=stream)
            copied[k] = wanted_x.copy()
        elif what == 9:
            np.testing.assert_array_equal(x.numpy(), wanted_x)
        elif what == 10:
            for k, wanted in copied.items():
                np.testing.assert_array_equal(pinned[k].numpy(), wanted)
        else:
            k = choose.randrange(4)
            arrays[k] = made(k), np.full(N, k, np.float32)
            bounds.clear()
            bound = None
            del x, y
            gc.collect()
    for x, wanted in arrays:
        np.testing.assert_array_equal(x.numpy(), wanted)
    assert driver.native > native + 20 and remembered > 2


def test_an_event_waits_for_launches_under_way(
    driver: fake_cuda.Driver, kernels: Any, monkeypatch: pytest.MonkeyPatch
):
    """Where the driver keeps a launch waiting without the GIL, no event is recorded before it."""
    warmed(kernels)
    out, stream = made(), cp.Stream(device=PLACE)
    in_stream = kernels[0].configure(stream=stream).over(N)
    in_stream(made(), out)
    x, held = made(), cp.empty(N, cp.f32, device="cpu", pinned=True)
    entered, inner = threading.Event(), driver.launch

    def slowly(function: Any, *rest: Any) -> Any:
        if function.name == "fill":
            entered.set()
            time.sleep(0.2)
        return inner(function, *rest)

    monkeypatch.setattr(driver, "launch", slowly)
    helper = threading.Thread(target=kernels[1].over(N), args=(x,))
    native = driver.native
    helper.start()
    assert entered.wait(10)
    in_stream(x, out)
    helper.join()
    assert driver.native == native + 1
    held.copy_from(out, stream=stream)  # nothing but the stream is waited for
    np.testing.assert_array_equal(held.numpy(), np.full(N, 3))


def test_plans_are_forgotten_with_the_device_that_they_launch_on():
    for spare in (7, 0):
        with fake_cuda.installed() as driver:
            for _ in range(spare):  # handles of the other driver's streams are others
                driver.cuStreamCreate("")
            transpose_in_its_stream(driver)


def transpose_in_its_stream(driver: fake_cuda.Driver) -> None:
    """Its arrays die with it: another driver may be there later, which must not free them."""
    x = cp.asarray(np.zeros((3, 5), np.float32), device=PLACE)
    cp.kernels.transpose(x)
    device: Any = find_device(PLACE)
    assert {stream for _, stream in driver.launched} == {device.stream(None)}
