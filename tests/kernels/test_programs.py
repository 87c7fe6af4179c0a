"""Calls of prebuilt functions that native code runs: from the third of a signature on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.array.interop import read_memory
from cubepy.jit.observe import observing
from cubepy.jit.programs import Program, Step
from cubepy.jit.tables import native_executor
from cubepy.kernels.calls import call
from cubepy.kernels.calls.libraries import serving
from tests.kernels.conftest import Draw
from tests.optional import require_package

SCALE = 2.0

is_native = pytest.mark.skipif(native_executor() is None, reason="no native launches here")


def scaled(v: Any) -> Any:
    """A function that captures a name."""
    return v * SCALE


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalised(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def pooled(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "sum of all": (kernels.sum, np.sum, ((1000,),)),
    "sum of many": (kernels.sum, np.sum, ((70_001,),)),
    "sum along columns": (lambda x: kernels.sum(x, 0), lambda x: x.sum(0), ((301, 70),)),
    "variance": (lambda x: kernels.var(x, 1), lambda x: x.var(1), ((9, 333),)),
    "place of the largest": (lambda x: kernels.argmax(x, 1), lambda x: x.argmax(1), ((9, 40),)),
    "softmax": (kernels.softmax, softmax, ((7, 33),)),
    "layer norm": (lambda x: kernels.layer_norm(x, (33,)), normalised, ((7, 33),)),
    "two arrays": (lambda x, y: kernels.map(lambda a, b: a - b, x, y), np.subtract, ((5, 6),) * 2),
    "product": (kernels.matmul, np.matmul, ((17, 9), (9, 13))),
    "pool": (lambda x: kernels.max_pool2d(x, 2), pooled, ((2, 3, 8, 6),)),
    "nothing": (lambda x: kernels.sum(x, 1), lambda x: x.sum(1), ((3, 0),)),
    "no results": (lambda x: kernels.map(scaled, x), lambda x: x * SCALE, ((0, 3),)),
}


def refuse(*args: Any) -> None:
    raise AssertionError("launched in Python")


@is_native
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_repeated_calls_are_native_and_right(
    name: str, threads: int, draw: Draw, monkeypatch: pytest.MonkeyPatch
):
    function, reference, shapes = CASES[name]
    for round_ in range(6):
        if round_ == 2:
            monkeypatch.setattr(Step, "run", refuse)
        arrays = [draw.numbers.standard_normal(shape).astype(np.float32) for shape in shapes]
        with cp.settings(num_threads=threads):
            found = function(*arrays)
        wanted = reference(*[x.astype(np.float64) for x in arrays])
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)
        assert np.asarray(found).dtype == (np.int64 if "place" in name else np.float32)


@is_native
def test_layouts_and_given_results(draw: Draw, monkeypatch: pytest.MonkeyPatch):
    """Views, results that the caller brings, one that is the argument; poisoned before."""
    for round_ in range(5):
        if round_ == 2:
            monkeypatch.setattr(Step, "run", refuse)
        base = draw.numbers.integers(-9, 9, (12, 10)).astype(np.float64)
        view = base[::-2, 1:].T
        out = np.full((9,), np.nan)
        assert kernels.sum(view, 1, out=out) is out
        np.testing.assert_array_equal(out, view.sum(1))
        rows = np.full((12, 20), np.nan)[:, ::2]
        kernels.map(lambda v: v + 1, base, out=rows)
        np.testing.assert_array_equal(rows, base + 1)
        kept = base.copy()
        kernels.map(lambda v: -v, base, out=base)
        np.testing.assert_array_equal(base, -kept)
        with pytest.raises(cp.LaunchError, match="overlaps"):
            kernels.map(lambda v: v * 2, base[1:], out=base[:-1])


@is_native
def test_arrays_that_moved_and_names_that_changed(monkeypatch: pytest.MonkeyPatch):
    global SCALE
    x = np.arange(6, dtype=np.float32)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0):
        monkeypatch.setattr(f"{__name__}.SCALE", scale)
        np.testing.assert_array_equal(kernels.map(scaled, x), x * scale)
        x.resize(4096, refcheck=False)  # moves
        x.resize(6, refcheck=False)
        x += 1


@is_native
@pytest.mark.optional("torch")
def test_tensors(draw: Draw, monkeypatch: pytest.MonkeyPatch):
    torch = require_package("torch")
    for round_ in range(5):
        if round_ == 2:
            monkeypatch.setattr(Step, "run", refuse)
        x = torch.from_numpy(draw.numbers.standard_normal((6, 50)))
        found = kernels.softmax(x.T, 0)
        torch.testing.assert_close(found, torch.softmax(x.T, 0))
        out = torch.full((50,), torch.nan, dtype=torch.float64)
        kernels.sum(x, 0, out=out)
        torch.testing.assert_close(out, x.sum(0))


@is_native
def test_calls_from_threads(draw: Draw):
    arrays = [draw.numbers.standard_normal((40, 60)).astype(np.float32) for _ in range(8)]
    wanted = [x.sum(1, dtype=np.float64) for x in arrays]

    def work(k: int) -> None:
        for _ in range(200):
            np.testing.assert_allclose(kernels.sum(arrays[k], 1), wanted[k], rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@is_native
def test_a_program_takes_arrays_and_addresses_alone():
    x = np.arange(4.0)
    program = Program([], 2)
    for _ in range(3):
        program(x, x.ctypes.data)
    known = native_executor()
    assert known is not None and type(program) is known.program
    program(x, x)
    for wrong in ((x, "x"), (x, 1 << 70)):
        program(*wrong)  # no step looks at them
    with pytest.raises(TypeError, match="keyword"):
        program(x, x, name=1)  # type: ignore[call-arg]


@is_native
@pytest.mark.optional("torch")
def test_results_that_are_brought(draw: Draw, monkeypatch: pytest.MonkeyPatch):
    """Calls with `out` are found by a description, unless it shares memory with an argument."""
    torch = require_package("torch")
    shared: list[Any] = []
    outputs = call._outputs

    def noting(function: str, first: Any, out: Any, count: int) -> Any:
        shared.append(out)
        return outputs(function, first, out, count)

    monkeypatch.setattr(call, "_outputs", noting)

    def general(function: Callable[..., Any], *args: Any, out: Any) -> int:
        """How often the general way was taken; the result is checked."""
        shared.clear()
        wanted = function(*(x.clone() for x in args))
        assert function(*args, out=out) is out
        torch.testing.assert_close(out, wanted)
        return len(shared)

    def numbers(*shape: int) -> Any:
        return torch.from_numpy(draw.numbers.standard_normal(shape).astype(np.float32))

    for round_ in range(5):
        is_short = round_ > 2
        a, b, out = numbers(6, 6), numbers(6, 6), torch.full((6, 6), torch.nan)
        assert general(kernels.matmul, a, b, out=out) <= (not is_short)
        assert general(kernels.softmax, a, out=out) <= (not is_short)
        assert general(kernels.softmax, a, out=a) == 1
        rows = torch.full((13, 6), torch.nan)
        assert general(kernels.softmax, rows[:5].copy_(b[1:]), out=rows[5:10]) <= (not is_short)
        for k in range(1, 6):
            with pytest.raises(cp.Error, match="E601"):
                kernels.matmul(rows[:6], b, out=rows[k : k + 6])
        with pytest.raises(cp.Error, match="E60"):
            kernels.matmul(a, b, out=torch.full((6, 5), torch.nan))
        with pytest.raises(cp.Error, match="E60"):
            kernels.matmul(a, b, out=torch.full((6, 6), torch.nan, requires_grad=True))


@is_native
def test_results_in_numpys_arrays(draw: Draw, monkeypatch: pytest.MonkeyPatch):
    for round_ in range(6):
        if round_ == 3:
            monkeypatch.setattr(call, "library_of", refuse)
        x = draw.numbers.standard_normal((9, 5))
        held = np.full((9, 10), np.nan)
        for out in (np.full((9, 5), np.nan), held[:, ::2]):
            assert kernels.softmax(x, out=out) is out
            np.testing.assert_allclose(out, softmax(x), rtol=1e-12)
        assert np.isnan(held[:, 1::2]).all()
        total, every = np.full(5, np.nan), kernels.sum(x)
        assert kernels.sum(x, 0, out=total) is total
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-12)
        assert type(every) is np.float64 and np.isclose(every, x.sum())
    monkeypatch.undo()
    frozen = np.full((9, 5), np.nan)
    frozen.flags.writeable = False
    rows = np.ones((12, 5))
    for wrong in (frozen, rows[1:10], np.full((9, 5), 0, ">f8"), np.full((9, 4), 0.0)):
        with pytest.raises(cp.Error, match="E6"):
            kernels.softmax(rows[:9], out=wrong)
    assert kernels.softmax(x, out=x) is x
    with serving("interpreter"):
        out = np.full((9, 5), np.nan)
        kernels.softmax(rows[:9], out=out)
        np.testing.assert_allclose(out, 0.2)


def test_an_observer_sees_what_is_written_by_calls_that_native_code_knows():
    x, out = np.ones((8, 9), np.float32), np.empty(8, np.float32)
    for _ in range(6):
        cp.kernels.sum(x, 1, out=out)
    seen: list[tuple[int, int]] = []
    with observing(seen.append), cp.settings(opt_level=3):
        cp.kernels.sum(x, 1, out=out)
        cp.kernels.sum(x[:, ::2], 1, out=out)
    memory = read_memory(out)
    assert memory is not None and seen.count(memory.extent()) == 2
