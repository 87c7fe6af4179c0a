"""Processes that `multiprocessing` starts without `fork`, after their parent has launched."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
from cubepy.jit.tables import native_executor

METHODS = [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()]


@cp.cube
def doubled(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


def work(x: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """Launches until native code does, and says whether it does."""
    out = np.full_like(x, np.nan)
    launcher = doubled.over(out)
    for _ in range(4):
        launcher(x, out)
    total = [cp.kernels.sum(x) for _ in range(4)][-1]
    return out, float(total), type(launcher) is not Launcher


@pytest.mark.parametrize("method", METHODS)
def test_children_launch_kernels(method: str):
    """Two children at once; the parent goes on afterwards."""
    x = np.arange(1000, dtype=np.float32)
    work(x)
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(work, [x, x])
    for out, total, is_native in [*found, work(x)]:
        np.testing.assert_array_equal(out, x * 2)
        assert total == x.sum() and is_native == (native_executor() is not None)


def named(kernel: Any, x: np.ndarray) -> np.ndarray:
    """Launch a kernel that came as an argument."""
    out = np.full_like(x, np.nan)
    kernel.over(out)(x, out)
    return out


@pytest.mark.parametrize("method", METHODS)
def test_kernels_are_arguments_of_children(method: str):
    """By name; configured ones as they are configured."""
    x = np.arange(100, dtype=np.float32)
    checked = doubled.configure(checked=True, line_size=4)
    with multiprocessing.get_context(method).Pool(1) as pool:
        for kernel in (doubled, checked):
            assert (pool.apply(named, (kernel, x)) == 2 * x).all()


class Doubling:
    @cp.cube
    def of_class(self, x: Any):
        x[0] = 2


def test_kernels_are_pickled_by_name_and_never_copied():
    x = np.arange(8, dtype=np.float32)
    for kernel in (doubled, Doubling.of_class):
        assert pickle.loads(pickle.dumps(kernel)) is kernel
    for kernel in (doubled, doubled.configure(plane_dim=1)):
        for _ in range(4):
            kernel.over(x)(x, x)
        assert pickle.loads(pickle.dumps(kernel)) is kernel
        assert copy.deepcopy({"kernel": kernel})["kernel"] is copy.copy(kernel) is kernel
    assert (x == 256 * np.arange(8)).all()

    @cp.cube
    def local(x: Any):
        x[0] = 1

    with pytest.raises((pickle.PicklingError, AttributeError), match=r"<locals>\.local"):
        pickle.dumps(local)


class Scaling:
    """No data class: kernels are specialised on it."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    @cp.cube
    def scale(self, x: Any):
        i = cp.ABSOLUTE_POS
        if i < x.size:
            x[i] = x[i] * self.factor


def test_methods_are_pickled_with_their_objects():
    kernel = Scaling(3).scale
    for protocol in (2, 5):
        for each in (kernel, kernel.configure(checked=True)):
            found = pickle.loads(pickle.dumps(each, protocol))
            assert found.function is each.function and found.owner.factor == 3
            for launch in (found[1, 4], pickle.loads(pickle.dumps(found[1, 4], protocol))):
                x = np.ones(4, np.float32)
                launch(x)
                assert (x == 3).all()
    x = np.ones(4, np.float32)
    copy.deepcopy(kernel)[1, 4](x)
    assert (x == 3).all()


@cp.autotuned(space={"n": (1, 2)})
@cp.cube
def tuned_kernel(x: Any, n: cp.Comptime[int]):
    x[0] = 1


@cp.autotuned(space={"n": (1, 2)})
def tuned_function(x: Any, *, config: Any) -> None:
    doubled.over(x)(x, x)


def test_tuned_functions_are_pickled_by_name_and_never_copied():
    for tuned in (tuned_kernel, tuned_function, tuned_kernel.kernel):
        assert pickle.loads(pickle.dumps(tuned)) is tuned
        assert copy.deepcopy([tuned])[0] is copy.copy(tuned) is tuned
    configured = tuned_kernel.configure(checked=True)
    found = pickle.loads(pickle.dumps(configured))
    assert found.kernel is configured.kernel and found.configs == configured.configs

    @cp.autotuned(space={"n": (1, 2)})
    def local(x: Any, *, config: Any) -> None: ...

    with pytest.raises((pickle.PicklingError, AttributeError), match=r"<locals>\.local"):
        pickle.dumps(local)
