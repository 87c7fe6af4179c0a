"""Launches on GPUs by native code, beside those of Python, on a driver that is made up.

torch's tensors of the host stand for those of a GPU: what describes them says so.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array import interop
from cubepy.jit import fast, programs
from cubepy.jit.kernel import CubeKernel
from cubepy.jit.programs import Program, Step
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.tables import Context, Memo
from tests.devices import fake_cuda
from tests.devices.fake_cuda import PRIMARY, Result
from tests.optional import require_package

torch = require_package("torch")
pytestmark = [
    pytest.mark.skipif(native_executor() is None, reason="no native launches here"),
    pytest.mark.usefixtures("nvrtc"),
]


def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


def by_axes(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], n: cp.i32):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + n


def in_lines(x: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


class Torch:
    """torch on a GPU: `stream` is the current one."""

    def __init__(self, driver: fake_cuda.Driver) -> None:
        self.driver = driver
        self.stream = 0

    def launches(self, kernel: CubeKernel, slots: int) -> list[fake_cuda.Launch]:
        """What is launched of a kernel with so many parameters, from now on."""
        self.driver.parameters[kernel.__name__] = slots
        return self.driver.launches


@pytest.fixture
def gpu(driver: fake_cuda.Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Torch]:
    executor = native_executor()
    assert executor is not None
    if not executor.reads_tensors(torch.Tensor):
        pytest.skip("torch has no exchange interface of DLPack")
    found, words, held = Torch(driver), executor._context, list(executor._context)
    inner = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    of_torch, fill = interop._of_torch, inner(words[Context.FILL])

    @inner
    def describe(x: Any, place: int) -> int:
        failed = fill(x, place)
        ctypes.c_int32.from_address(place + 8).value = 2
        return failed

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
    def current(kind: int, ordinal: int, place: int) -> int:
        assert (kind, ordinal) == (2, 0)
        ctypes.c_uint64.from_address(place).value = found.stream
        return 0

    def on_gpu(x: Any) -> Any:
        return replace(of_torch(x), device="cuda:0", queue=found.stream)

    monkeypatch.setattr(interop, "_of_torch", on_gpu)
    monkeypatch.setattr(fast, "queue_of_tensor", lambda x: found.stream)
    monkeypatch.setitem(executor._ordinals, 0, True)
    words[Context.FILL] = ctypes.cast(describe, ctypes.c_void_p).value
    words[Context.STREAM] = ctypes.cast(current, ctypes.c_void_p).value
    driver.context = PRIMARY
    yield found
    words[:] = held


def python_only(kernel: CubeKernel) -> CubeKernel:
    """The same function, which native code does not launch."""
    other = cp.cube(kernel.function)
    assert other.native is not None
    other.native.is_enabled = False
    return other


def warmed(launch: Any, *args: Any) -> None:
    """Launch until native code does."""
    for _ in range(3):
        launch(*args)


SHAPES = [(4,), (1000,), (3, 5), (64, 64), (2, 3, 4), (0,), (1,), (7, 0), (33, 1)]


@pytest.mark.parametrize("function", [axpy, in_lines])
def test_the_driver_is_asked_for_the_same(gpu: Torch, function: Any):
    kernel = cp.cube(function)
    slow = python_only(kernel)
    rng = np.random.default_rng(5)
    gpu.launches(kernel, 3)
    for round_number in range(60):
        shape = SHAPES[rng.integers(len(SHAPES))]
        gpu.stream = int(rng.integers(3)) * 64
        step = int(rng.integers(1, 3))
        x, y, out = (torch.zeros((*shape[:-1], shape[-1] * step))[..., ::step] for _ in range(3))
        args = (x, y, out, float(rng.normal())) if function is axpy else (x, out)
        if rng.integers(4) == 0:
            args = (out, *args[1:])
        before = len(gpu.driver.launches)
        kernel.over(out)(*args)
        middle = len(gpu.driver.launches)
        slow.over(out)(*args)
        native, python = gpu.driver.launches[before:middle], gpu.driver.launches[middle:]
        assert native == python, (round_number, shape, step)
        assert len(native) == (0 not in shape)
    assert gpu.driver.native > 20


@pytest.mark.parametrize(
    ("major", "version", "overlaps"),
    [(9, 13_000, True), (9, 12_030, True), (9, 12_020, False), (8, 13_000, False)],
)
def test_launches_overlap_where_kernels_wait(gpu: Torch, major: int, version: int, overlaps: bool):
    gpu.driver.attributes["COMPUTE_CAPABILITY_MAJOR"], gpu.driver.version = major, version
    kernel, tensors = cp.cube(axpy), [torch.zeros(64) for _ in range(3)]
    launches = gpu.launches(kernel, 3)
    warmed(kernel.over(64), *tensors, 2.0)
    kernel.over(64)(*tensors, 2.0)
    assert gpu.driver.native and [x.overlaps for x in launches] == [overlaps] * 4
    known = import_module("cuda.bindings.driver").CUlaunchAttributeID
    assert int(getattr(known, fake_cuda.OVERLAP)) == fake_cuda.OVERLAPS


def test_every_shape_is_launched_natively(gpu: Torch):
    kernel = cp.cube(by_axes)
    launches = gpu.launches(kernel, 3)
    for n in range(2, 5):
        x, out = torch.zeros(n, 40), torch.zeros(n, 40)
        kernel.over((n, 40))(x, out, 7)
    native = gpu.driver.native
    for n in range(2, 40):
        x, out = torch.zeros(n, 300), torch.zeros(n, 300)
        kernel.over((n, 300))(x, out, 3)
        assert launches[-1].grid == (2, n, 1) and launches[-1].dim == (256, 1, 1)
        assert {x.data_ptr(), out.data_ptr()} < set(launches[-1].words)
    assert gpu.driver.native == native + 38


def test_streams_are_those_of_the_moment(gpu: Torch):
    kernel = cp.cube(axpy)
    launch, args = kernel.over(64), (*(torch.zeros(64) for _ in range(3)), 2.0)
    bound = launch.bind(*args)
    warmed(launch, *args)
    warmed(bound)
    native = gpu.driver.native
    for stream in (0, 5, 9, 5):
        gpu.stream = stream
        launch(*args)
        bound()
        assert gpu.driver.launched[-2:] == [("axpy", stream)] * 2
    assert gpu.driver.native == native + 8


def test_bound_launches_look_at_their_tensors(gpu: Torch):
    """They are remembered, so that little is read of tensors that are as they were."""
    kernel = cp.cube(axpy)
    launches = gpu.launches(kernel, 3)
    x, y, out = (torch.zeros(64) for _ in range(3))
    bound = kernel.over(64).bind(x, y, out, 2.0)
    warmed(kernel.over(64), x, y, out, 2.0)
    warmed(bound)
    native = gpu.driver.native
    assert bound._memo[Memo.PLAN]
    for size in (64, 64, 80, 64):
        x.data = torch.zeros(size)
        for _ in range(2):
            bound()
            assert {x.data_ptr(), y.data_ptr(), out.data_ptr()} <= set(launches[-1].words)
    assert gpu.driver.native == native + 8


def test_other_arrays_go_through_python(gpu: Torch):
    kernel = cp.cube(axpy)
    x, y, out = (torch.zeros(64) for _ in range(3))
    warmed(kernel.over(64), x, y, out, 1.0)
    native = gpu.driver.native
    own = cp.zeros(64, device="cuda:0")
    for _ in range(4):
        kernel.over(64)(own, y, out, 1.0)
    streamed = kernel.configure(stream=cp.Stream(device="cuda:0"))
    for _ in range(4):
        streamed.over(64)(x, y, out, 1.0)
        kernel.configure(checked=True, device="cuda:0").over(64)(own, own, own, 1.0)
    assert gpu.driver.native == native
    a, b, c = (np.ones(64, np.float32) for _ in range(3))
    for _ in range(4):
        kernel.over(64)(a, b, c, 2.0)
        assert c[0] == 3
    assert gpu.driver.native == native
    kernel.over(64)(x, y, out, 1.0)
    assert gpu.driver.native == native + 1


def test_the_callers_context(gpu: Torch):
    kernel = cp.cube(axpy)
    launch, args = kernel.over(64), (*(torch.zeros(64) for _ in range(3)), 2.0)
    warmed(launch, *args)
    native, driver = gpu.driver.native, gpu.driver
    driver.context = 0
    launch(*args)
    assert driver.native == native + 1 and driver.context == 0
    driver.contexts[99] = (0, 2)
    driver.context = 99
    launch(*args)
    assert driver.native == native + 1 and driver.context == 99
    assert driver.loaded.count(2) == 1
    driver.contexts[98] = (1, 3)
    driver.context = 98
    launch(*args)
    assert driver.native == native + 2 and driver.context == 98
    driver.context = PRIMARY
    launch(*args)
    assert driver.native == native + 3


def test_what_the_driver_refuses(gpu: Torch):
    kernel = cp.cube(axpy)
    launch, args = kernel.over(64), (*(torch.zeros(64) for _ in range(3)), 2.0)
    warmed(launch, *args)
    native = gpu.driver.native
    gpu.driver.refused = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    gpu.driver.context = 0
    with pytest.raises(cp.DeviceError, match=r"E509: cuda:0 is lost: .*launched .*: axpy"):
        launch(*args)
    assert gpu.driver.native == native + 1 and gpu.driver.context == 0
    gpu.driver.refused = None
    launch(*args)
    cp.device("cuda:0").synchronize()
    gpu.driver.refused = Result.CUDA_ERROR_INVALID_VALUE
    gpu.driver.cuGetErrorString = lambda status: (0, b"invalid")  # type: ignore[attr-defined]
    with pytest.raises(cp.DeviceError, match="E508.*the launch of axpy"):
        launch(*args)


def test_bad_arguments(gpu: Torch):
    kernel = cp.cube(axpy)
    launch, (x, y, out) = kernel.over(64), (torch.zeros(64) for _ in range(3))
    warmed(launch, x, y, out, 2.0)
    count = len(gpu.driver.launched)
    for wrong, code in (
        ((x, y, out, [1.0]), "E401"),
        ((x, y, out[:1].expand(64), 1.0), "E410"),
        ((x, out[:-1], out[1:], 1.0), "E405"),
        ((x, y, np.zeros(64, np.float32), 1.0), "E418"),
        ((x, y), "E406"),
    ):
        with pytest.raises(cp.LaunchError, match=code):
            launch(*wrong)
    with pytest.raises(cp.LaunchError, match="E408"):
        kernel[(1, 1 << 20, 1), 64](x, y, out, 1.0)
    assert len(gpu.driver.launched) == count


def test_grids_of_clusters(gpu: Torch):
    kernel = cp.cube(in_lines).configure(cluster=(2, 1, 1))
    launches = gpu.launches(kernel, 3)
    tensors = [[torch.zeros(n) for _ in range(2)] for n in (1000, 3000, 5000, 7000)]
    for _ in range(3):
        for x, out in tensors:
            kernel.over(out)(x, out)
    assert {launch.grid for launch in launches} == {(2, 1, 1), (4, 1, 1), (6, 1, 1), (8, 1, 1)}
    for _ in range(3):
        kernel[4, 256](*tensors[0])
    native = gpu.driver.native
    with pytest.raises(cp.LaunchError, match="E408"):
        kernel[3, 256](*tensors[0])
    assert native and gpu.driver.native == native


def test_other_threads_run_while_the_driver_waits(gpu: Torch, monkeypatch: pytest.MonkeyPatch):
    kernel = cp.cube(axpy)
    launch, args = kernel.over(64), (*(torch.zeros(64) for _ in range(3)), 2.0)
    warmed(launch, *args)
    asked, answered = threading.Event(), threading.Event()

    def answer() -> None:
        assert asked.wait(10)
        answered.set()

    def wait(config: int, *rest: int) -> int:
        asked.set()
        return 0 if answered.wait(10) else 1

    helper = threading.Thread(target=answer)
    helper.start()
    gpu.driver._addresses.clear()
    monkeypatch.setattr(gpu.driver, "_cuLaunchKernelEx", wait)
    device: Any = cp.device("cuda:0")
    device._native._held[0] = gpu.driver.cuGetProcAddress(b"cuLaunchKernelEx", 0, 0)[1]
    launch(*args)
    helper.join()


def test_threads_launch_their_own(gpu: Torch):
    kernel = cp.cube(by_axes)
    launches = gpu.launches(kernel, 3)
    warmed(kernel.over((4, 4)), torch.zeros(4, 4), torch.zeros(4, 4), 1)

    def work(rows: int) -> None:
        x, out = torch.zeros(rows, 64), torch.zeros(rows, 64)
        for _ in range(200):
            kernel.over((rows, 64))(x, out, rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    grids = [launch.grid for launch in launches]
    assert {rows: grids.count((1, rows, 1)) for rows in (2, 3, 5, 7)} == dict.fromkeys(
        (2, 3, 5, 7), 200
    )


# Tensor maps


def boxed(x: cp.cuda.TensorMap, out: cp.Tensor[cp.f32]):
    tile, barrier = cp.shared(256, cp.f32), cp.shared(1, cp.u64)
    if cp.UNIT_POS == 0:
        cp.cuda.tensor_load(tile, 0, x, (0, 0), barrier, 0)
    out[cp.UNIT_POS] = tile[cp.UNIT_POS]


def stored(x: cp.cuda.TensorMap, y: cp.cuda.TensorMap):
    tile = cp.shared(256, cp.f32)
    if cp.UNIT_POS == 0:
        cp.cuda.tensor_store(y, (0, 0), tile, 0)
        cp.cuda.tensor_load(tile, 0, x, (0, 0), cp.shared(1, cp.u64), 0)


def rows(n: int, m: int = 64) -> Any:
    """A tensor of rows that begin at multiples of 64 bytes."""
    held = torch.zeros(n * m + 16)
    first = -held.data_ptr() % 64 // 4
    return held[first : first + n * m].view(n, m)


def test_tensor_maps(gpu: Torch):
    kernel = cp.cube(boxed)
    slow = python_only(kernel)
    launches = gpu.launches(kernel, 2)
    gpu.driver.maps[kernel.__name__] = (0,)
    out, base = torch.zeros(256), rows(32)
    views = [base, base[::2], base[4:], base[:, :32], rows(5)]
    for round_number in range(4):
        for x in views:
            for box, swizzle in (((8, 16), 0), ((8, 16), 64), ((4, 32), 0)):
                native = gpu.driver.native
                kernel[1, 256](cp.cuda.tensor_map(x, box, swizzle), out)
                assert round_number < 2 or gpu.driver.native == native + 1
                slow[1, 256](cp.cuda.tensor_map(x, box, swizzle), out)
                assert launches[-1] == launches[-2]
                assert launches[-1].words[2][0] == x.data_ptr()
    native, kept = gpu.driver.native, [rows(32) for _ in range(5)]
    for x in kept:
        kernel[1, 256](cp.cuda.tensor_map(x, (8, 16)), out)
        assert launches[-1].words[2][0] == x.data_ptr()
    assert gpu.driver.native == native + 5
    for x in (base.view(-1)[1:1025].view(16, 64), base.T):
        with pytest.raises(cp.LaunchError, match="E421"):
            kernel[1, 256](cp.cuda.tensor_map(x, (8, 16)), out)
    assert gpu.driver.native == native + 5


def test_tensor_maps_that_are_written(gpu: Torch):
    kernel = cp.cube(stored)
    x, y = rows(32), rows(64)
    maps = [cp.cuda.tensor_map(v, (8, 32)) for v in (x, y[:32], y[1:33])]
    for _ in range(4):
        kernel[1, 32](*maps[:2])
    assert gpu.driver.native
    native = gpu.driver.native
    with pytest.raises(cp.LaunchError, match="E405"):
        kernel[1, 32](*maps[1:])
    with pytest.raises(cp.LaunchError, match="E410"):
        kernel[1, 32](maps[0], cp.cuda.tensor_map(y[:1].expand(32, 64), (8, 32)))
    assert gpu.driver.native == native


# Programs


def program_of(kernel: CubeKernel, *tensors: Any, times: int = 2) -> Program:
    """So many launches of a kernel on these operands."""
    prepared, matcher = kernel.over(64)._prepared((*tensors, 2.0), {})
    template = list(prepared.template)
    for slot, _, _ in prepared.numbers:
        template[slot] = 0x40000000
    addresses = [matcher.memories[name].address for _, name in prepared.addresses]
    numbers = [[t.data_ptr() for t in tensors].index(a) for a in addresses]
    slots = [slot for slot, _ in prepared.addresses]
    holes = tuple((slot, number, 0) for slot, number in zip(slots, numbers, strict=True))
    return Program([Step(prepared, tuple(template), holes)] * times, len(tensors))


def test_programs_with_tensor_maps(gpu: Torch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "queue_of_tensor", lambda x: gpu.stream)
    kernel = cp.cube(boxed)
    launches = gpu.launches(kernel, 2)
    gpu.driver.maps[kernel.__name__] = (0,)
    x, out = rows(32), torch.zeros(256)
    given = cp.cuda.tensor_map(x[4:], (8, 16)), out
    prepared, _ = kernel[1, 256]._prepared(given, {})
    ((word, _, encoder),), ((place, _),) = prepared.maps, prepared.addresses
    maps = (((word, 0, 4 * 64 * 4), encoder),)
    program = Program([Step(prepared, prepared.template, ((place, 1, 0),), maps)], 2)
    for n in range(6):
        y = rows(32)
        program(y, out)
        kernel[1, 256](cp.cuda.tensor_map(y[4:], (8, 16)), out)
        assert launches[-1] == launches[-2] and launches[-1].words[2][0] == y[4:].data_ptr(), n
    assert gpu.driver.native >= 6


def test_programs(gpu: Torch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "queue_of_tensor", lambda x: gpu.stream)
    kernel = cp.cube(axpy)
    launches = gpu.launches(kernel, 4)
    tensors = [torch.zeros(64) for _ in range(3)]
    program = program_of(kernel, *tensors)
    for stream in (0, 0, 0, 7, 9):
        gpu.stream = stream
        program(*tensors)
        assert len(launches) == 2 and launches[0] == launches[1]
        assert launches[0].stream == stream
        assert {t.data_ptr() for t in tensors} < set(launches[0].words)
        launches.clear()
    assert gpu.driver.native == 6
    others = [torch.zeros(64) for _ in range(3)]
    program(*others)
    assert {t.data_ptr() for t in others} < set(launches[0].words)


def test_programs_that_the_driver_refuses(gpu: Torch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "queue_of_tensor", lambda x: gpu.stream)
    kernel = cp.cube(axpy)
    tensors = [torch.zeros(64) for _ in range(3)]
    program = program_of(kernel, *tensors, times=3)
    warmed(program, *tensors)
    gpu.driver.launched.clear()

    def refuse_second(*args: Any) -> Any:
        gpu.driver.launched.append(("asked", 0))
        return (Result.CUDA_ERROR_ILLEGAL_ADDRESS if len(gpu.driver.launched) == 2 else 0,)

    monkeypatch.setattr(gpu.driver, "launch", refuse_second)
    with pytest.raises(cp.DeviceError, match="E509"):
        program(*tensors)
    assert len(gpu.driver.launched) == 2  # neither again nor the rest


def test_programs_with_other_operands(gpu: Torch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "queue_of_tensor", lambda x: gpu.stream)
    kernel = cp.cube(axpy)
    tensors = [torch.zeros(64) for _ in range(3)]
    program = program_of(kernel, *tensors)
    warmed(program, *tensors)
    native = gpu.driver.native
    gpu.driver.context = 0
    program(*tensors)
    assert gpu.driver.native == native + 2 and gpu.driver.context == 0
    program(*tensors[:2], tensors[2].data_ptr())
    assert gpu.driver.native == native + 2 and len(gpu.driver.launched) == 10
