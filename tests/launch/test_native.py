"""Native launches: what they refuse goes through Python, with the same results and errors."""

from __future__ import annotations

import ctypes
import json
import weakref
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.grid import fixed
from cubepy.jit.kernel import Launcher
from cubepy.jit.tables import native_executor
from tests.optional import require_package

SCALE = 2.0

pytestmark = pytest.mark.skipif(native_executor() is None, reason="no native launches here")


@cp.cube
def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@cp.cube
def scaled(x, out, by: cp.f32 = 1.0, *, n: cp.Comptime = 1):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * by * SCALE * n


@cp.cube
def by_axes(x, out):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + 1


@cp.cube
def applied(x, out, f: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(x.flat[i])


class Pair(NamedTuple):
    x: Any
    by: Any


@dataclass(frozen=True)
class Options:
    y: Any
    n: cp.Comptime[int]


@cp.cube
def of_structs(pair, options, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = pair.x.flat[i] * pair.by + options.y.flat[i] * options.n


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Watch:
    """Counts the launches of a context that came to Python."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.general = 0
        inner = Launcher._prepared

        def counting(launcher: Any, args: Any, kwargs: Any) -> Any:
            self.general += 1
            return inner(launcher, args, kwargs)

        monkeypatch.setattr(Launcher, "_prepared", counting)

    def __enter__(self) -> Watch:
        self.general = 0
        return self

    def __exit__(self, *error: Any) -> None:
        self.count = self.general


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_shapes_are_read_at_launch(watch: Watch):
    shapes = [(n, m) for n in range(1, 40) for m in range(2, 40)]
    for n, m in [(3, 4)] * 3 + [(n, 1) for n in (1, 2)] * 3:
        by_axes.over((n, m))(numbers(n, m), np.zeros((n, m), np.float32))
    launchers = 0
    with watch:
        for n, m in shapes:
            x, out = numbers(n, m), np.full((n, m + 3), np.nan, np.float32)
            by_axes.over(out[:, :m])(x, out[:, :m])
            assert np.array_equal(out[:, :m], x + 1)
            assert np.isnan(out[:, m:]).all()
            launchers += 1
    assert launchers == len(shapes)
    assert watch.count < 20


def test_ways_to_pass_arguments(watch: Watch):
    x, out = numbers(50), np.zeros(50, np.float32)
    launch = scaled.over(out)
    calls = [
        (lambda: launch(x, out), 1, 1),
        (lambda: launch(x, out, 3.0), 3, 1),
        (lambda: launch(x, out, by=3.0), 3, 1),
        (lambda: launch(out=out, x=x), 1, 1),
        (lambda: launch(x, by=2.5, out=out), 2.5, 1),
        (lambda: launch(x, out, n=3), 1, 3),
        (lambda: launch(x, out, np.float32(1.5)), 1.5, 1),
        (lambda: launch(x, out, np.float64(1.5)), 1.5, 1),
        (lambda: launch(x, out, np.int16(-3), n=2), -3, 2),
        (lambda: launch(x, out, 7, n=4.0), 7, 4),
    ]
    for is_native in (False, False, True):
        with watch:
            for call, by, n in calls:
                out[:] = np.nan
                call()
                np.testing.assert_array_equal(out, x * np.float32(by) * np.float32(2) * n)
        assert watch.count == 0 or not is_native


def test_structs(watch: Watch):
    x, y, out = numbers(50), numbers(50, seed=1), np.zeros(50, np.float32)
    for is_native in (False, False, True):
        with watch:
            for by, n in ((2.0, 3), (np.float32(1.5), 3), (2.0, 4)):
                out[:] = np.nan
                of_structs.over(out)(Pair(x, by), Options(y, n), out)
                np.testing.assert_allclose(out, x * np.float32(by) + y * n, rtol=1e-5)
        assert watch.count == 0 or not is_native


def test_comptime_functions(watch: Watch):
    x, out = numbers(50), np.zeros(50, np.float32)

    def twice(v):
        return v * 2

    for is_native in (False, False, True):
        with watch:
            for by in (2, 3):
                applied.over(out)(x, out, lambda v, by=by: v * by)
                np.testing.assert_array_equal(out, x * by)
                applied.over(out)(x, out, lambda v: v * by)
                np.testing.assert_array_equal(out, x * by)
            applied.over(out)(x, out, twice)
            np.testing.assert_array_equal(out, x * 2)
        assert watch.count == 0 or not is_native


def test_a_function_whose_code_is_replaced():
    x, out = numbers(50), np.zeros(50, np.float32)

    def f(v):
        return v * 2

    def g(v):
        return v * 3

    for _ in range(4):
        applied.over(out)(x, out, f)
    f.__code__ = g.__code__
    applied.over(out)(x, out, f)
    np.testing.assert_array_equal(out, x * 3)


def test_captured_names(watch: Watch):
    global SCALE
    x, out = numbers(50), np.zeros(50, np.float32)
    launch = scaled.over(out)
    try:
        for is_native in (False, False, True):
            with watch:
                for value in (2.0, 3.0, -0.0, 0.0):
                    SCALE = float(str(value))  # another object each time
                    launch(x, out)
                    assert out.tobytes() == (x * np.float32(value)).tobytes()
            assert watch.count == 0 or not is_native
    finally:
        SCALE = 2.0


def test_names_of_pythons_own(watch: Watch):
    @cp.cube
    def larger(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = max(x.flat[i], 0.0)

    x, out = numbers(50), np.zeros(50, np.float32)
    launch = larger.over(out)
    for _ in range(3):
        launch(x, out)
    with watch:
        for _ in range(3):
            launch(x, out)
    assert watch.count == 0
    assert np.array_equal(out, np.maximum(x, 0))


def test_in_place(watch: Watch):
    x, y = numbers(50), numbers(50, seed=1)
    for is_native in (False, False, True):
        with watch:
            a = x.copy()
            axpy.over(a)(a, y, a, 2.0)
            np.testing.assert_allclose(a, x * 2 + y, rtol=1e-6)
            axpy[1, 64](y, a, a, 2.0)
        assert watch.count == 0 or not is_native


class Wide(IntEnum):
    ONE = 1


class Number(float):
    pass


def test_what_native_code_refuses():
    """After the plan is known: each odd call does what the same call does without plans."""
    x, y, out = numbers(64), numbers(64, seed=1), np.zeros(64, np.float32)
    launch = axpy[1, 64]
    for _ in range(4):
        launch(x, y, out, 2.0)
    frozen = out.copy()
    frozen.flags.writeable = False
    whole = np.zeros(130, np.float32)
    unaligned = np.frombuffer(bytearray(4 * 64 + 1), np.uint8)[1:].view(np.float32)
    odd: list[tuple[Any, ...]] = [
        (x, y, frozen, 2.0),
        (whole[:64], y, whole[1:65], 2.0),
        (whole[:128:2], y, whole[2:130:2], 2.0),
        (x.astype(">f4"), y, out, 2.0),
        (unaligned, y, out, 2.0),
        (x, y, np.broadcast_to(np.zeros(1, np.float32), 64), 2.0),
        (x, y, np.lib.stride_tricks.as_strided(out, (64,), (0,)), 2.0),
        (np.ma.masked_array(x), y, out, 2.0),
        (x, y, out),
        (x, y, out, 2.0, 3.0),
        (x, y, out, "no"),
        (x, y, [1.0], 2.0),
        (x, y, None, 2.0),
        (x, y, out, 2j),
        (x, y, out, np.complex64(1)),
        (x, y, out, 1 << 70),
    ]
    for args in odd:
        with pytest.raises(cp.Error) as native:
            launch(*args)
        with pytest.raises(cp.Error) as general:
            Launcher.__call__(launch, *args)
        assert str(native.value) == str(general.value)
    for keywords in ({"a": 2.0, "b": 1}, {"x": x}, {"q": 1}):
        with pytest.raises(cp.LaunchError, match="E406"):
            launch(x, y, out, **keywords)


@pytest.mark.parametrize("value", [True, Wide.ONE, Number(1.5), np.float16(1.5), 1e39, np.inf, 3])
def test_odd_numbers(value: Any):
    x, y, out = numbers(64), numbers(64, seed=1), np.zeros(64, np.float32)
    for _ in range(4):
        axpy[1, 64](x, y, out, 2.0)
    for _ in range(4):
        out[:] = 0
        axpy[1, 64](x, y, out, value)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(out, x * np.float32(value) + y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_layouts_in_turn(size: int):
    for _ in range(3):
        for step in (1, -1, 2):
            whole, out = numbers(max(1, 2 * size)), np.zeros(size, np.float32)
            x = whole[: size * abs(step) : abs(step)][:: 1 if step > 0 else -1]
            axpy.over(out)(x, x, out, 2.0)
            np.testing.assert_allclose(out, x * 2 + x, rtol=1e-6)


def test_resized_and_reshaped_arrays():
    x, out = numbers(64), np.zeros(64, np.float32)
    launch = axpy.over(out)
    for size in (64, 64, 64, 200, 5, 1 << 16):
        x.resize(size, refcheck=False)
        out.resize(size, refcheck=False)
        x[:], out[:] = numbers(size), 0
        launch(x, x, out, 1.0)
        np.testing.assert_array_equal(out, x + x)
    x.shape = out.shape = (256, 256)
    launch(x, x, out, 1.0)
    np.testing.assert_array_equal(out, x + x)


def test_settings(watch: Watch):
    @cp.cube
    def beyond(x, out):
        out.flat[cp.ABSOLUTE_POS] = x.flat[cp.ABSOLUTE_POS + 1]

    x, out = numbers(65), np.zeros(64, np.float32)
    for _ in range(4):
        beyond[1, 64](x, out)
    for _ in range(3):
        with cp.settings(checked=True), pytest.raises(cp.OutOfBoundsError):
            beyond[1, 64](x[:64].copy(), out)
    with watch:
        for _ in range(10):
            with cp.settings(num_threads=1):  # nothing that code depends on
                beyond[1, 64](x, out)
    assert watch.count == 0
    with watch, cp.settings(opt_level=1):
        beyond[1, 64](x, out)
    assert watch.count == 1
    for threads in (1, 2):
        with cp.settings(num_threads=threads):
            for _ in range(3):
                out[:] = 0
                beyond[1, 64](x, out)
                np.testing.assert_array_equal(out, x[1:])


def test_limits_of_the_grid():
    out = np.zeros(4, np.float32)
    launch = axpy[1, 4]
    for _ in range(4):
        launch(out, out, out, 0.0)
    for count in ((1 << 40, 1 << 40), (1 << 31, 1 << 31, 1 << 2), (1 << 62, 1, 2)):
        with pytest.raises(cp.LaunchError, match="E408"):
            axpy[count, 4](out, out, out, 0.0)
    axpy[0, 4](out, out, out, 1.0)
    axpy.over(0)(out, out, out, 1.0)


def test_bound_launches(watch: Watch):
    x, y, out = numbers(64), numbers(64, seed=1), np.zeros(64, np.float32)
    bounds = [
        (axpy[1, 64].bind(x, y, out, 2.0), 2),
        (axpy.over(out).bind(x, a=3.0, out=out, y=y), 3),
        (axpy.over(out).bind(x, y, out, np.float32(4)), 4),
    ]
    for is_native in (False, False, True):
        with watch:
            for bound, by in bounds:
                out[:] = np.nan
                bound()
                np.testing.assert_allclose(out, x * by + y, rtol=1e-5, atol=1e-6)
        assert watch.count == 0 or not is_native
    out.flags.writeable = False
    for bound, _ in bounds:
        with pytest.raises(cp.LaunchError, match="E404"):
            bound()
        with pytest.raises(TypeError):
            bound(1)
        with pytest.raises(TypeError):
            bound(a=1)


def test_grids_are_what_was_asked_for():
    """Launchers are found again by numbers that are equal and of one type."""
    x, out = numbers(64), np.zeros(64, np.float32)
    for _ in range(4):
        scaled[1, 64](x, out)
        scaled[(1, 1), 64](x, out)
        scaled.over(64)(x, out)
        scaled.over((8, 8))(x, out)
        scaled.over(out)(x, out)
    assert scaled[1, 64] is scaled[1, 64]
    assert scaled[1, 64].grid == scaled[np.int64(1), True * 64].grid
    assert scaled.over(out).grid.what is out  # type: ignore[union-attr]
    for grid in ((1.0, 64), (1, 64.0), (1,), 1, "x", (1, 64, 1), ((1, 1.0), 64), (-1, 64), None):
        with pytest.raises(cp.LaunchError, match="E416"):
            scaled[grid]
    for what in (64.0, (8.0, 8), -1, None, "x"):
        with pytest.raises(cp.LaunchError, match="E416"):
            scaled.over(what)
    with pytest.raises(cp.LaunchError, match="E416"):
        scaled.over(64, per="no")
    with pytest.raises(TypeError):
        scaled.over()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        scaled.over(64, 1)  # type: ignore[call-arg]
    assert scaled.over(what=64).grid == scaled.over(64).grid


@pytest.mark.optional("torch")
def test_tensors(watch: Watch):
    torch = require_package("torch")
    for is_native in (False, False, True):
        with watch:
            for dtype in (torch.float32, torch.float64, torch.int32, torch.uint8):
                x = (torch.arange(64).reshape(8, 8) % 7).to(dtype)
                for view in (x, x.t(), x[:, ::2], x[1:1], x[3]):
                    out = torch.zeros_like(view)
                    axpy.over(out)(view, view, out, 2)
                    assert torch.equal(out, view * 2 + view)
                    axpy[1, 64](view, out, out, 1)
                    assert torch.equal(out, view * 4)
        assert watch.count == 0 or not is_native


@pytest.mark.optional("torch")
def test_odd_tensors():
    """After the plan is known: what native code may not read as if it were plain."""
    torch = require_package("torch")
    x, out = torch.arange(8.0), torch.zeros(8)
    launch = axpy[1, 8]
    for _ in range(4):
        launch(x, x, out, 2.0)
    z = torch.complex(x, x)
    odd = [torch._neg_view(x), z.conj().imag, z, x.to_sparse(), torch.zeros(8, device="meta")]
    for tensor in odd:
        with pytest.raises(cp.Error) as native:
            launch(tensor, x, out, 2.0)
        with pytest.raises(cp.Error) as general:
            Launcher.__call__(launch, tensor, x, out, 2.0)
        assert str(native.value) == str(general.value)
    with pytest.raises(cp.LaunchError, match="E405"):
        launch(out[:4], x, out[1:5], 2.0)
    with pytest.raises(cp.LaunchError, match="E410"):
        launch(x, x, torch.zeros(1).expand(8), 2.0)
    lazy = torch._lazy_clone(x)
    for _ in range(3):
        launch(torch.zeros(8), x + 1, lazy, 0.0)
    assert torch.equal(lazy, torch.arange(8.0) + 1)
    assert torch.equal(x, torch.arange(8.0))
    grad = torch.ones(8, requires_grad=True)
    launch(grad, torch.nn.Parameter(x), out, 2.0)
    assert torch.equal(out, x + 2)
    x.data = torch.ones(8)
    launch(x, x, out, 2.0)
    assert torch.equal(out, torch.full((8,), 3.0))
    mixed = np.zeros(8, np.float32)
    launch(x, mixed, out, 2.0)
    assert torch.equal(out, torch.full((8,), 2.0))


def test_unknown_layouts_switch_native_code_off(monkeypatch: pytest.MonkeyPatch):
    from cubepy.runtimes.native.launching import executor, frame

    for name in ("ARRAY_DATA", "ARRAY_FLAGS", "TUPLE_FLAGS", "NUMBER_VALUE"):
        with monkeypatch.context() as patch:
            patch.setattr(frame, name, 24)
            assert not executor.layouts_are_known()
    assert executor.layouts_are_known()
    assert ctypes.sizeof(ctypes.c_void_p) == 8


@cp.cube
def reversed_in_blocks(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    held = cp.shared(20_000, cp.f32)
    k = cp.UNIT_POS
    held[k] = x[k]
    cp.sync_cube()
    out[k] = held[cp.CUBE_DIM - 1 - k]


def test_kernels_that_ask_for_memory(watch: Watch):
    x, out = numbers(64), np.zeros(64, np.float32)
    launch = reversed_in_blocks[1, 64]
    for is_native in (False, False, True):
        out[:] = 0
        with watch:
            launch(x, out)
        np.testing.assert_array_equal(out, x[::-1])
        assert watch.count == 0 or not is_native


def test_plans_are_data():
    """A plan holds for many shapes, and consists of nothing but text and numbers."""

    def plans() -> list[Any]:
        tables = by_axes.native._tables.values()  # type: ignore[union-attr]
        return [learned.plan for table in tables for learned in table._learned.values()]

    for size in (8, 9, 10, 11):
        x, out = numbers(size, size), np.zeros((size, size), np.float32)
        by_axes.over((size, size))(x, out)
    before = plans()
    for size in range(12, 40):
        x, out = numbers(size, size), np.zeros((size, size), np.float32)
        by_axes.over((size, size))(x, out)
    assert plans() == before
    for plan in before:
        text = json.dumps(asdict(plan), sort_keys=True)
        assert json.loads(text)["kernel"] == "by_axes"
        assert hash(plan) == hash(replace(plan))


def test_the_last_grid_is_found_by_its_numbers_alone():
    """It is known by its objects, so that others which are equal to them are looked at again."""
    x, out = numbers(1200), np.zeros(1200, np.float32)
    for count, dim in [(1, 64), (20, 64), (1, 64), ((1, 2), 64), ((2, 1), 64), (1, 64)] * 2:
        for _ in range(3):
            launcher = scaled[count, dim]
            assert launcher.grid == Launcher(scaled, fixed((count, dim))).grid
            launcher(x, out)
            scaled[count, dim](x, out)
    many = [int(text) for text in ("1000", "1000")]  # equal, and two objects
    assert scaled[many[0], 64] is scaled[many[0], 64]
    assert scaled[many[0], 64].grid == scaled[many[1], 64].grid
    for odd in (True, 1.0, (1, 1.0)):
        assert scaled[1, 64] is scaled[1, 64]
        if odd is True:
            assert scaled[odd, 64] is not scaled[1, 64]
        else:
            with pytest.raises(cp.LaunchError, match="E416"):
                scaled[odd, 64]
    held = weakref.ref(scaled[3, 64])
    for count in range(4, 8):
        scaled[count, 64]
        scaled[count, 64]
    assert held() is scaled[3, 64]
    assert scaled[7, 64].grid == fixed((7, 64))
    with pytest.raises(cp.LaunchError, match="E416"):
        scaled.__getitem__((1.0, 64))
    assert scaled.__getitem__((7, 64)) is scaled[7, 64]
