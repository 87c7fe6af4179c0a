"""Kernels that are printed, parsed and launched as IR compute what they did.

Tests of the conformance suite, of the examples and of control flow run once more here, and each
launch of theirs goes through the text of its IR.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.printer import print_kernel
from cubepy.ir.types import bf16, f16, f32
from cubepy.jit.grid import fixed
from cubepy.jit.kernel import CubeKernel, Launcher
from cubepy.jit.launch import Prepared, over
from cubepy.jit.native import NativeLaunches
from tests.conformance import test_cooperation as cooperation
from tests.conformance import test_operations as operations
from tests.examples import test_examples as examples
from tests.frontend import test_control as control

DEVICES = ("cpu", "interpreter")


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was launched; `Launcher` launches text."""
    names: list[str] = []

    def launch(launcher: Launcher, *args: Any, **kwargs: Any) -> None:
        names.append(launcher.kernel.__name__)
        launch_text(launcher, args, kwargs)

    monkeypatch.setattr(Launcher, "__call__", launch)
    # new launchers that no native code knows, also of kernels that other tests launched
    monkeypatch.setattr(NativeLaunches, "attach", lambda *_: None)
    monkeypatch.setattr(CubeKernel, "__getitem__", lambda self, grid: Launcher(self, fixed(grid)))
    monkeypatch.setattr(CubeKernel, "over", _over)
    return names


def _over(self: Any, what: Any, *, per: str = "unit", cube_dim: Any = None) -> Launcher:
    return Launcher(self, over(what, per, cube_dim))


def launch_text(launcher: Launcher, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Launch the text of the kernel that this call would launch, on the same arrays."""
    kernel: Any = launcher.kernel
    traced: list[Any] = []
    specialisations: Any = type(kernel.specialisations)
    trace = specialisations.trace

    def noted(self: Any, signature: Any, target: Any) -> Any:
        found = trace(self, signature, target)
        traced.append(found[0])
        return found

    kernel.made.clear()
    with pytest.MonkeyPatch.context() as patch, cp.settings(opt_level=0):
        patch.setattr(specialisations, "trace", noted)
        patch.setattr(Prepared, "launch", lambda *_: None)
        prepared, matcher = launcher._prepared(args, kwargs)
    kernel.made.clear()
    options = kernel.options
    again = parsed(print_kernel(traced[-1])).configure(
        device=prepared.device.name, fast_math=options.fast_math, contract=options.contract
    )
    slots = len(prepared.compiled.artifact.slots)
    count = prepared.template[slots : slots + 3]
    given = {**matcher.scalars, **matcher.arrays}
    ranks = {
        p.argument: getattr(p.kind, "rank", None) for p in again.ir.params if p.kind.is_address
    }
    values = [flat(given[name], ranks.get(name)) for name in again.parameters]
    original(again[count, again.ir.cube_dim], *values)


original = Launcher.__call__
parsed = cache(cp.from_ir)  # a kernel that is launched again is compiled once


def flat(value: Any, rank: int | None) -> Any:
    """Arrays that a kernel of lines takes as one row are that row."""
    if rank == 1 and isinstance(value, np.ndarray) and value.ndim > 1:
        return value.reshape(-1)
    return value


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["i8", "f32", "u64", "f16"])
def test_conversions(device: str, dtype: str):
    operations.test_conversions(device, True, False, set(), getattr(cp, dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["i32", "f32", "f64"])
def test_reductions(device: str, dtype: str):
    operations.test_reductions(device, True, False, set(), getattr(cp, dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_lines(device: str, launches: list[str]):
    for count in (1, 7, 9):
        operations.test_missing_lanes(device, count)
    for step in (1, 2, -1):
        operations.test_lines_of_scalar_tensors(device, 4, step)
    operations.test_masks(device, 7)
    assert len(launches) > 5


@pytest.mark.parametrize("device", DEVICES)
def test_planes_and_fragments(device: str, launches: list[str]):
    cooperation.test_planes_meet_where_they_only_synchronise(device)
    cooperation.test_products_of_fragments(device, False, set(), f16, (5, 7, 9))
    cooperation.test_products_of_shared_tiles(device, set(), bf16, 3)
    cooperation.test_units_that_returned_give_no_extremum(device, set(), f32)
    assert len(launches) > 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", examples.NAMES)
def test_examples(device: str, name: str):
    module = examples.load(name)
    for plane_dim in (1, 32):
        settings = {"device": device, "plane_dim": plane_dim}
        examples.CHECKS[name](module, True, settings)


def test_control_flow(launches: list[str]):
    for kernel in control.CASES:
        control.test_as_in_python(kernel)
    assert len(launches) >= len(control.CASES)
