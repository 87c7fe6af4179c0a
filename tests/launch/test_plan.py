"""The launch plan as data: equal for all launches of a class, and what it says of a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.plan import LaunchPlan


class Pair(NamedTuple):
    x: Any
    y: Any


@cp.cube
def moved(pair, out, a, b: cp.Comptime):
    i = cp.ABSOLUTE_POS_Y
    j = cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = pair.x[i, j] * a + b
        pair.y[i, j] = pair.x[i, j]


def plan_of(shape: tuple[int, ...], a: Any = 2.0, b: Any = 1) -> LaunchPlan:
    x, y, out = (np.zeros(shape, np.float32) for _ in range(3))
    prepared, _ = moved.over(out)._prepare((Pair(x, y), out, a, b), {})
    covered = prepared.plan.grid.cover(shape)
    assert prepared.template[-3:] == covered and prepared.count == np.prod(covered)
    return prepared.plan


def test_one_plan_serves_all_shapes():
    plan = plan_of((7, 300))
    assert plan == plan_of((90, 1111)) and hash(plan) == hash(plan_of((3, 257)))
    assert plan.written == ("pair.y", "out")
    kinds = [type(rule).__name__ for rule in plan.rules]
    assert kinds == ["StructRule", "ArrayRule", "ArrayRule", "ArrayRule", "NumberRule"] + [
        "ComptimeRule"
    ]


@pytest.mark.parametrize("changed", [{"a": 2}, {"a": np.float64(2)}, {"b": "text"}])
def test_other_kinds_of_values_have_other_plans(changed: dict[str, Any]):
    if changed.get("b") == "text":
        with pytest.raises(cp.CompileError):
            plan_of((7, 300), **changed)
        return
    assert plan_of((7, 300), **changed) != plan_of((7, 300))


@pytest.mark.parametrize("per", ["unit", "plane", "cube"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (300, 5), (2, 300, 700), (3, 2, 5, 257)])
def test_cubes_that_cover_a_shape(per: str, shape: tuple[int, ...]):
    """By the definition: the last axis on X, leading ones on Z, and nothing is left out."""
    x = np.zeros(shape, np.float32)
    dim = (32, 4, 2)
    launcher = moved.configure(plane_dim=16).over(shape, per=per, cube_dim=dim)
    out = np.zeros((4, 4), np.float32)
    prepared, _ = launcher._prepare((Pair(out.copy(), out.copy()), out, 1.0, 0), {})
    items = (*(1,) * (3 - x.ndim), *shape) if x.ndim < 4 else (6, 5, 257)
    serves = {"unit": (32, 4, 2), "plane": (2, 4, 2), "cube": (1, 1, 1)}[per]
    wanted = tuple(-(-n // by) for n, by in zip(reversed(items), serves, strict=True))
    assert prepared.template[-3:] == wanted
