"""Prebuilt functions on CubePy's own arrays of a device are native from the third call on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.jit.programs import Program, Step
from cubepy.jit.tables import native_executor

pytestmark = pytest.mark.skipif(native_executor() is None, reason="no native launches here")


def places() -> list[str]:
    return [name for name in ("opencl:0", "cuda:0") if _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        cp.asarray(np.zeros(1, np.float32), device=name)
    except cp.Error:
        return False
    return True


@pytest.fixture(params=places() or [pytest.param("", marks=pytest.mark.skip("no device"))])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often Python launched a step."""
    inner, found = Step.run, [0]

    def counting(step: Any, *args: Any) -> None:
        found[0] += 1
        inner(step, *args)

    monkeypatch.setattr(Step, "run", counting)
    return found


def _pooled(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    cut = x[:, :, : h // 2 * 2, : w // 2 * 2]
    return cut.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


CASES: Any = {
    "sum": (2, lambda x, out=None: kernels.sum(x, 1, out=out), lambda x: x.sum(1)),
    "max": (2, lambda x, out=None: kernels.max(x, 0, out=out), lambda x: x.max(0)),
    "map": (2, lambda x, out=None: kernels.map(_cube, x, out=out), lambda x: x**3),
    "matmul": (0, lambda x, out=None: kernels.matmul(x, x, out=out), lambda x: x @ x),
    "pool": (4, lambda x, out=None: kernels.max_pool2d(x, 2, out=out), _pooled),
}
"""For each function the rank of its argument, 0 for a square matrix, a call, and a reference."""


def _cube(v: Any) -> Any:
    return v * v * v


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_out", [False, True])
def test_repeated_calls(name: str, has_out: bool, place: str, count: list[int]):
    rank, function, reference = CASES[name]
    rng = np.random.default_rng()
    size = int(rng.integers(3, 40))
    shape = tuple(map(int, rng.integers(3, 20, rank))) if rank else (size, size)
    for round_ in range(7):
        if round_ == 4:
            count[0] = 0
        x = rng.normal(size=shape).astype(np.float32)
        wanted, given = reference(x.astype(np.float64)), cp.asarray(x, device=place)
        if has_out:
            out = cp.full(wanted.shape, np.nan, cp.f32, device=place)
            assert function(given, out) is out
        else:
            out = function(given)
        assert type(out) is cp.Array and out.device == place
        np.testing.assert_allclose(out.numpy(), wanted, rtol=2e-4, atol=2e-4)
    assert count[0] <= len(CASES), "native code launches, but for what waits for a copy"


def test_views_and_what_is_refused(place: str, count: list[int]):
    """Other layouts, types and devices never take the plan of those before them."""
    rng = np.random.default_rng()
    x = rng.integers(-9, 9, (12, 8)).astype(np.float32)
    for _ in range(4):
        given = cp.asarray(x, device=place)
        for view in (lambda a: a, lambda a: a[2:], lambda a: a[::-2], lambda a: a[3:, 1:5]):
            np.testing.assert_array_equal(kernels.sum(view(given), 0).numpy(), view(x).sum(0))
        wide = cp.asarray(x.astype(np.int32), device=place)
        np.testing.assert_array_equal(kernels.sum(wide, 0).numpy(), x.sum(0))
        kernels.map(_cube, given, out=given)
        np.testing.assert_array_equal(given.numpy(), x**3)
        with pytest.raises(cp.LaunchError, match="overlaps"):
            kernels.map(_cube, given[1:], out=given[:-1])
        with pytest.raises(cp.LaunchError):
            kernels.map(_cube, given, out=x)
        np.testing.assert_array_equal(given.numpy(), x**3)


def test_a_program_checks_where_its_operands_are(place: str, count: list[int]):
    """An operand of another library is left to Python, which raises before it launches."""
    given, made = cp.asarray(np.ones((4, 4), np.float32), device=place), []
    inner = Program.__call__

    def noting(program: Program, *operands: Any) -> None:
        made.append((program, operands))
        inner(program, *operands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "__call__", noting)
        for _ in range(3):
            kernels.sum(given, 0)
    (program, operands), known, before = made[0], native_executor(), count[0]
    assert known is not None and type(program) is known.program
    with pytest.raises(AssertionError):
        program(*operands[:-1], "no array")
    assert count[0] == before
    out = kernels.sum(given, 0)
    np.testing.assert_array_equal(out.numpy(), np.full(4, 4))
