"""Norms of channels: `batch_norm`, `group_norm`, `instance_norm`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.kernels.calls.arguments import float_of, refused, shown, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import with_bounds
from cubepy.kernels.calls.hooks import Functions
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.normalisation.group_launches import is_beside, launch_groups
from cubepy.kernels.normalisation.launches import Norm, along_axis, launch_given, launch_norm
from cubepy.kernels.normalisation.operands import (
    check_floats,
    check_weights,
    computed_in,
    memory_order,
)
from cubepy.kernels.normalisation.problem import Places

_PLANS = Plans()


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel, as torch's `batch_norm`.

    `x`: floats [n, channels, ...] of any strides; all others are None, or one number for each
    channel, of the dtype of `x` or the one it is computed in. With `training` the mean and the
    variance are those of a channel, and the running ones, where they are given, become
    (1 - momentum) times themselves plus momentum times these, the variance without bias; else they
    are the running ones. `prologue`: a cube function f(v) that lines of elements go through first,
    in the type that they are computed in. `epilogue`: as for `matmul`; it gets a line of results
    and the index of its first element. Lines run along the axis that is densest in memory. Gives an
    array of the library and dtype of `x`, with its axes in memory as those of `x`; or fills `out`,
    which may be `x`.

    f16 and bf16 are computed in f32 and rounded once; the variance is made of distances from the
    mean, of parts that are combined (Chan, Golub and LeVeque 1979). Raises `LaunchError` for shapes
    that do not fit and where statistics are missing, `LaunchTypeError` for other dtypes.
    """
    functions = Functions.of(prologue, epilogue)
    momentum, eps = float_of("batch_norm", "momentum", momentum), float_of("batch_norm", "eps", eps)
    given = (running_mean, running_var, weight, bias)
    names = ("x", "running_mean", "running_var", "weight", "bias", *functions.names)
    has = tuple(v is not None for v in given)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, rest = arrays[0], iter(arrays[1:])
        _check("batch_norm", x)
        mean, var, w, b = _channel_weights("batch_norm", x, names[1:5], has, rest)
        norm = _norm(planner, x, w, b, eps, functions, tuple(rest))
        if bool(mean) != bool(var):
            raise wrong("batch_norm", "one of `running_mean` and `running_var` is given", "both")
        if not training and not mean:
            what = "`running_mean` and `running_var` are None"
            raise wrong("batch_norm", what, "pass them, or training=True")
        if not prod(x.shape):
            return
        if not training:
            launch_given(planner, norm, *(along_axis(m, x.shape, 1) for m in (*mean, *var)))
            return
        if prod(x.shape) == x.shape[1]:
            reason = f"`x` has shape {x.shape}: one number for each channel has no variance"
            raise wrong("batch_norm", reason, "pass training=False")
        running = [
            planner.updated(name, m) for name, m in zip(names[1:3], (*mean, *var), strict=False)
        ]
        reduced = tuple(k for k in range(len(x.shape)) if k != 1)
        norm = replace(norm, running=tuple(running), momentum=momentum)
        launch_norm(planner, norm, reduced)

    parameters = (bool(training), momentum, eps, *has, functions.key)
    return call(
        _PLANS,
        "batch_norm",
        names,
        (x, *given, *functions.arrays),
        parameters,
        make,
        out,
        optional=names[1:5],
    )


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, as torch's `group_norm`.

    Mean and variance are those of `num_groups` groups of neighbouring channels of each of the n
    parts of `x`, which is [n, channels, ...]. See `batch_norm`.
    """
    if not isinstance(num_groups, int):
        raise refused("group_norm", "num_groups", f"is {shown(num_groups)}; it takes an int", "")
    functions = Functions.of(prologue, epilogue)
    return _group_norm("group_norm", x, num_groups, weight, bias, eps, functions, out)


def instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    prologue: Any = None,
    epilogue: Any = None,
    out: Any = None,
) -> Any:
    """As `group_norm` with a group for each channel, in torch's order; without
    `use_input_stats` as `batch_norm` by the running statistics.

    Running statistics are not updated: with `use_input_stats` they are None.
    """
    if not use_input_stats:
        given = (running_mean, running_var, weight, bias, False, momentum, eps)
        return batch_norm(x, *given, prologue=prologue, epilogue=epilogue, out=out)
    if running_mean is not None or running_var is not None:
        reason = "`running_mean` and `running_var` are not updated"
        raise wrong("instance_norm", reason, "pass None, or use_input_stats=False")
    functions = Functions.of(prologue, epilogue)
    return _group_norm("instance_norm", x, None, weight, bias, eps, functions, out)


def _group_norm(
    name: str,
    x: Any,
    groups: int | None,
    weight: Any,
    bias: Any,
    eps: Any,
    functions: Functions,
    out: Any,
) -> Any:
    eps = float_of(name, "eps", eps)
    names = ("x", "weight", "bias", *functions.names)
    has = weight is not None, bias is not None

    def make(planner: Planner, arrays: list[Memory]) -> None:
        x, rest = arrays[0], iter(arrays[1:])
        _check(name, x)
        count = x.shape[1] if groups is None else groups
        if (count < 1 and x.shape[1]) or x.shape[1] % max(1, count):
            reason = f"`num_groups` is {count}, and `x` has shape {x.shape}"
            raise wrong(name, reason, "groups divide the channels")
        w, b = _channel_weights(name, x, names[1:3], has, rest)
        norm = _norm(planner, x, w, b, eps, functions, tuple(rest))
        if prod(x.shape) and is_beside(planner, norm, count):
            launch_groups(planner, norm, count)
        elif prod(x.shape):
            each = x.shape[1] // count
            axes = tuple(range(2, len(x.shape) + 1))
            launch_norm(planner, _grouped(norm, count, each), axes)

    parameters = (groups, eps, *has, functions.key)
    arrays = (x, weight, bias, *functions.arrays)
    return call(_PLANS, name, names, arrays, parameters, make, out, optional=names[1:3])


def _check(function: str, x: Memory) -> None:
    check_floats(function, "x", x)
    if len(x.shape) < 2:
        raise wrong(function, f"`x` has shape {x.shape}; it is [n, channels, ...]")


def _channel_weights(
    function: str, x: Memory, names: tuple[str, ...], has: tuple[bool, ...], rest: Iterator[Memory]
) -> list[tuple[Memory, ...]]:
    """What was given for each channel."""
    found: list[tuple[Memory, ...]] = []
    for name, is_given in zip(names, has, strict=True):
        found.append(())
        if is_given:
            given = next(rest)
            check_weights(function, name, x, x.shape[1:2], given, "that of the channels of `x`")
            found[-1] = (given,)
    return found


def _norm(
    planner: Planner,
    x: Memory,
    weight: tuple[Memory, ...],
    bias: tuple[Memory, ...],
    eps: float,
    functions: Functions,
    extras: tuple[Memory, ...],
) -> Norm:
    """The operands with the axes of `x`."""
    functions.check(planner.function)
    out = planner.result(Shape(x.shape, x.dtype, memory_order(x)))
    return Norm(
        x,
        planner.joined(out, (x,)),
        tuple(along_axis(m, x.shape, 1) for m in weight),
        tuple(along_axis(m, x.shape, 1) for m in bias),
        computed_in(x.dtype),
        eps,
        Places(tuple(((k, 1),) for k in range(len(x.shape)))),
        functions.epilogue,
        with_bounds(functions.epilogue, extras, x.shape),
        functions.prologue,
    )


def _grouped(n: Norm, groups: int, each: int) -> Norm:
    """The channels as two axes."""

    def split(x: Memory) -> Memory:
        shape = (x.shape[0], groups, each, *x.shape[2:])
        step = x.strides[1]
        return replace(x, shape=shape, strides=(x.strides[0], each * step, step, *x.strides[2:]))

    terms = (n.places.terms[0], ((1, each), (2, 1)))
    places = Places((*terms, *(((k + 1, 1),) for k in range(2, len(n.x.shape)))))
    return replace(
        n,
        x=split(n.x),
        out=split(n.out),
        weights=tuple(map(split, n.weights)),
        biases=tuple(map(split, n.biases)),
        places=places,
    )
