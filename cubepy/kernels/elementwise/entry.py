"""Elementwise functions of arrays: `map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.array.memory import HOST, Memory
from cubepy.errors import Error
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType
from cubepy.jit.kernel import without_frames
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.call import run
from cubepy.kernels.calls.hooks import check_function
from cubepy.kernels.calls.libraries import Shape, refused
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.kernel import RESULTS, trace_result
from cubepy.kernels.elementwise.launches import broadcast, launch_each
from cubepy.kernels.elementwise.operands import dtype_of, operands
from cubepy.lang.annotations import Spec
from cubepy.runtimes.registry import find_device

_PLANS = Plans()
_NAMES = tuple(f"arrays[{k}]" for k in range(256))


def map(function: Callable[..., Any], *arrays: Any, out: Any = None) -> Any:
    """`function` of the elements of some arrays, which are broadcast against each other.

    `function`: a cube function, plain function or lambda of the kernel language, of as many numbers
    as there are arrays, giving one; it is compiled with this call, so that
    `map(lambda a, b: a * b + 1, x, y)` reads each array once and makes no temporary. `arrays`: any
    shapes, strides and dtypes, of one library; numbers take the common type of the arrays. Gives an
    array of that library, whose dtype is what the function gives, with its axes in memory as those
    of the first array of full shape; or `out`, which may be one of the arrays, and may have another
    dtype of the same kind.

    Rounds as the function's operations do. Raises `LaunchError` for shapes that do not broadcast
    and for a tensor that requires grad outside of `torch.no_grad()`, `LaunchTypeError` for what is
    no array, what is no function of so many numbers, and floats for an `out` of integers,
    `CompileError` for what is not in the kernel language.
    """
    if len(arrays) > len(_NAMES):
        raise wrong("map", f"it is given {len(arrays)} arrays", f"{len(_NAMES)} at most")
    names, parameters = _NAMES[: len(arrays)], (comptime_key(function),)
    key, found = _PLANS.short.known("map", names, arrays, parameters, out)
    if found is not None:
        return found.run(arrays, 1, out)
    library, seen = operands("map", names, arrays)

    def make(planner: Planner, inputs: list[Memory]) -> None:
        _plan(planner, function, inputs, out)

    short = key, [True] * len(seen)
    return run(_PLANS, "map", library, names, seen, parameters, make, out, short=short)


# What is done for one signature


def _plan(planner: Planner, function: Any, inputs: list[Memory], out: Any) -> None:
    names = ("v",) if len(inputs) == 1 else tuple(f"v{k + 1}" for k in range(len(inputs)))
    about = "the function takes an element of each array"
    check_function("map", "function", function, names, about)
    extents = broadcast("map", [x.shape for x in inputs])
    traced = _traced_dtype(planner, function, [x.dtype for x in inputs])
    dtype = traced if out is None else dtype_of("map", out)
    if traced.is_float and not dtype.is_float:
        what = f"has dtype {dtype.name}, and the function gives {traced.name}"
        raise refused("map", "out", what, f"let the function convert it, as in cp.{dtype.name}(v)")
    result = planner.result(Shape(extents, dtype, _order(inputs, extents)))
    inputs = planner.merged(inputs)
    result = planner.joined(result, inputs)
    launch_each(planner, function, inputs, result)


def _order(inputs: Sequence[Memory], extents: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of the first input of full shape, from the slowest to the fastest."""
    for x in inputs:
        if x.shape == extents:
            order = sorted(range(len(extents)), key=lambda k: (-abs(x.strides[k]), k))
            return None if order == list(range(len(extents))) else tuple(order)
    return None


def _traced_dtype(planner: Planner, function: Any, dtypes: Sequence[DType]) -> DType:
    """The dtype that a function of the language gives for numbers of these dtypes.

    The facts of a trace say so, which are kept on disk: no later process traces for it.
    """
    inputs, results = (tuple(Spec(d, (None,)) for d in given) for given in (dtypes, RESULTS))
    arguments = {"function": function, "inputs": inputs, "results": results}
    target = find_device(HOST).target
    try:
        signature = trace_result.signature_of(arguments, target, None)
        facts, captured = trace_result.specialisations.seen(signature, target)
    except Error as error:
        raise without_frames(error) from error.__cause__
    planner.traced(captured)
    (written,) = facts.written
    return RESULTS[int(written.rpartition(".")[2])]
