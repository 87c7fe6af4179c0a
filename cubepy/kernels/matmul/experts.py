"""Products of groups of rows: `grouped_matmul`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cubepy.array.memory import Memory
from cubepy.errors import fail
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import i32, i64
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import with_bounds
from cubepy.kernels.calls.hooks import check_epilogue, parts_of_epilogue
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.grouped import put_all_zeros
from cubepy.kernels.matmul.problem import (
    COLUMNS,
    ROWS,
    Problem,
    check_factors,
    has_boxes,
    is_dense,
    result_of,
    run_of,
    sums_of,
    turned,
)
from cubepy.kernels.matmul.strategies import is_cpu
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.kernels.matmul.experts_on_hopper import Grouped

_PLANS = Plans()


@dataclass(frozen=True, slots=True)
class Groups:
    """The operands of one call: `x` [rows, k], `weights` [groups, k, n], a bias [groups, rows, n]
    that is the same for all rows."""

    x: Memory
    weights: Memory
    ends: Memory
    out: Memory
    biases: tuple[Memory, ...]
    epilogue: Callable[..., Any] | None
    extras: tuple[Any, ...]

    @property
    def count(self) -> int:
        """How many groups there are."""
        return self.weights.shape[0]

    @property
    def beside(self) -> dict[str, Any]:
        """What kernels take beside factors and their configuration."""
        finish = {"biases": self.biases, "extras": self.extras, "epilogue": self.epilogue}
        return {"ends": self.ends, "out": self.out, **finish}


def grouped_matmul(
    x: Any, weights: Any, ends: Any, *, bias: Any = None, epilogue: Any = None, out: Any = None
) -> Any:
    """Products of groups of rows with one matrix each, as in mixtures of experts.

    `x`: (rows, k), its groups one after another; `weights`: (groups, k, n), any strides, the same
    dtype; `ends`: (groups,) of i32 or i64, the row before which each group ends, so that groups
    may be empty. An end below an earlier one, or behind the last row, counts as that. `bias`:
    (groups, n), added to the rows of each group, of the dtype of `x` or of its sums. `epilogue`: as
    for `matmul`; its index is (row, column). Rows that no group has are zeros, of which an epilogue
    makes what it does. Gives (rows, n), an array of the library of `x`, or fills `out`.

    Dtypes, rounding and errors are those of `matmul`. `ends` is read by the kernel alone: nothing
    waits for it, and nothing checks it.
    """
    after, extras, names_of_extras = parts_of_epilogue(epilogue)
    names = ("x", "weights", "ends", "bias", *names_of_extras)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        first = 3 if bias is None else 4
        _plan(planner, arrays[:3], tuple(arrays[3:first]), after, tuple(arrays[first:]))

    arrays, key = (x, weights, ends, bias, *extras), None if after is None else comptime_key(after)
    return call(_PLANS, "grouped_matmul", names, arrays, (key,), make, out, optional=("bias",))


# What is done for one signature


def _plan(
    planner: Planner,
    arrays: list[Memory],
    biases: tuple[Memory, ...],
    epilogue: Callable[..., Any] | None,
    extras: tuple[Memory, ...],
) -> None:
    x, weights, ends = arrays
    check_epilogue("grouped_matmul", epilogue, len(extras))
    check_factors("grouped_matmul", x, weights, ("x", "weights"))
    _check(x, weights, ends, biases)
    extents = x.shape[0], weights.shape[2]
    out = planner.result(Shape(extents, result_of(x.dtype)))
    if 0 in extents:
        return
    some = with_bounds(epilogue, extras, extents)
    shape = weights.shape[0], *extents
    biases = tuple(replace(b, shape=shape, strides=(b.strides[0], 0, b.strides[1])) for b in biases)
    groups = Groups(x, weights, ends, out, biases, epilogue, some)
    if not groups.count:
        line = {"extras": some, "epilogue": epilogue, "sums": sums_of(x.dtype)}
        planner.launch(put_all_zeros, Over(extents[0], "unit", None), out=out, **line)
        return
    if is_cpu(planner.target):
        from cubepy.kernels.matmul.expert_blocks import launch_blocks

        launch_blocks(planner, groups)
        return
    from cubepy.kernels.matmul.waves import grouped

    right, problem = _problem_of(groups)
    t = grouped(planner.target, problem, groups.count)
    if t is None:
        from cubepy.kernels.matmul.experts_on_gpus import launch_tiles

        each = -(-problem.m // groups.count)
        launch_tiles(planner, groups, replace(problem, m=each, batch=(groups.count,)))
    else:
        _launch_tiles(planner, groups, right, t)


def _problem_of(g: Groups) -> tuple[Memory, Problem]:
    """The matrices with their dense axis last, and all groups as one product."""
    x, weights, (m, n) = g.x, g.weights, g.out.shape
    right = ROWS if is_dense(weights, -1) or not is_dense(weights, -2) else COLUMNS
    stored = weights if right == ROWS else turned(weights)
    sums = sums_of(x.dtype)
    finished = bool(g.biases) or g.epilogue is not None
    return stored, Problem(
        *(m, n, x.shape[1], (), sums, sums, g.out.dtype, ROWS, right),
        is_finished=finished,
        elements=x.dtype,
        has_boxes=all(map(has_boxes, (x, stored, g.out))),
        dtype=x.dtype,
        runs=(run_of(x, -1), run_of(stored, -1)),
    )


def _check(x: Memory, weights: Memory, ends: Memory, biases: tuple[Memory, ...]) -> None:
    """E601 for shapes that do not fit, E602 for ends that are no integers and other biases."""
    if len(x.shape) != 2 or len(weights.shape) != 3 or x.shape[1] != weights.shape[1]:
        reason = f"`x` has shape {x.shape} and `weights` {weights.shape}"
        raise wrong("grouped_matmul", reason, "they are (rows, k) and (groups, k, n)")
    if ends.shape != weights.shape[:1] or ends.dtype not in (i32, i64):
        reason = f"`ends` is {ends.dtype} of shape {ends.shape}"
        raise wrong("grouped_matmul", reason, "it has an i32 or i64 for each matrix of `weights`")
    for bias in biases:
        if bias.shape != (weights.shape[0], weights.shape[2]):
            reason = f"`bias` has shape {bias.shape} and `weights` {weights.shape}"
            raise wrong("grouped_matmul", reason, "it is (groups, n)")
        kinds = list(dict.fromkeys((x.dtype, sums_of(x.dtype))))
        if bias.dtype not in kinds:
            reason = f"`x` is {x.dtype}, `bias` is {bias.dtype}"
            hint = f"convert `bias` to {' or '.join(map(str, kinds))}"
            raise fail("E602", function="grouped_matmul", reason=reason, suggestion=hint)


def _launch_tiles(planner: Planner, g: Groups, weights: Memory, t: Grouped) -> None:
    """One cube for each multiprocessor, if there are as many tiles."""
    from cubepy.kernels.matmul.experts_on_hopper import BOX_ROWS, multiply_groups
    from cubepy.kernels.matmul.maps import boxes
    from cubepy.lang.pipelines import ROW_BYTES, box

    rows, columns = g.out.shape
    across = -(-columns // t.height)
    tiles = (rows // t.width + t.groups + 1) * across
    planner.launch(
        multiply_groups.configure(cubes_per_sm=1),
        Fixed((min(planner.target.multiprocessors, tiles), 1, 1), (t.units, 1, 1)),
        x=boxes(g.x, (BOX_ROWS, ROW_BYTES // t.factors.itemsize)),
        weights=boxes(weights, box(t.height, t.factors, t.left_turned)),
        **g.beside,
        k=g.x.shape[1],
        t=t,
    )
