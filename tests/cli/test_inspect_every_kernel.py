"""`cubepy inspect cubepy.kernels:NAME` for every prebuilt function, on every kind of target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from random import SystemRandom
from typing import Any

import pytest

from cubepy import kernels
from cubepy.kernels import random

SIGNS = {"cpu": "define ", "cuda": "__global__", "hip": "__global__", "metal": "kernel void"}
SIGNS["opencl"] = "__kernel"
TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90a", "opencl", "metal", "hip:gfx942")
ROWS = ("x=f32[9,70]",)
CHANNELS = ("x=f32[4,6,9]", "running_mean=f32[6]", "running_var=f32[6]")
HEADS = ("q=f16[2,4,70,64]", "k=f16[2,2,90,64]", "v=f16[2,2,90,64]")
SLOPES = (*HEADS, "result=f16[2,4,70,64]", "lse=f32[2,4,70]", "grad_output=f16[2,4,70,64]")
RAGGED = ("q=f16[70,4,64]", "k=f16[90,2,64]", "v=f16[90,2,64]", "q_offsets=i32[4]")
PAGED = ("q=f16[3,2,4,64]", "k=f16[9,16,2,64]", "v=f16[9,16,2,64]", "block_table=i32[3,4]")
IMAGES = {"1d": "x=f32[2,4,19]", "2d": "x=f32[2,4,9,11]", "3d": "x=f32[2,4,5,6,7]"}
GRADS = {"1d": "grad_output=f32[2,6,17]", "2d": "grad_output=f32[2,6,7,9]"}
GRADS["3d"] = "grad_output=f32[2,6,3,4,5]"
WEIGHTS = {"1d": "weight=f32[6,4,3]", "2d": "weight=f32[6,4,3,3]", "3d": "weight=f32[6,4,3,3,3]"}
SIZES = {"1d": "(2,4,19)", "2d": "(2,4,9,11)", "3d": "(2,4,5,6,7)"}
TURNED = {"1d": "weight=f32[4,6,3]", "2d": "weight=f32[4,6,3,3]", "3d": "weight=f32[4,6,3,3,3]"}
FILTERS = {name: spec.partition("f32")[2].strip("[]") for name, spec in WEIGHTS.items()}
Words = tuple[tuple[str, ...], tuple[str, ...]]
"""What `--arg` and `--comptime` take."""


def words() -> Iterator[tuple[str, Words]]:
    """The command line of every function."""
    for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "norm"):
        yield name, (ROWS, ("axis=1",))
    for name in ("logsumexp", "argmax", "argmin", "cumsum", "cumprod", "softmax", "log_softmax"):
        yield name, (ROWS, ("axis=1",))
    for name in ("layer_norm", "rms_norm"):
        yield name, (ROWS, ("normalized_shape=70",))
    yield from sized()
    yield "batch_norm", (CHANNELS, ())
    yield "instance_norm", (CHANNELS[:1], ())
    yield "group_norm", (CHANNELS[:1], ("num_groups=3",))
    yield "cross_entropy", ((*ROWS, "target=i64[9]"), ())
    yield "sort", (ROWS, ())
    yield "topk", (ROWS, ("k=4",))
    yield "transpose", (ROWS, ())
    yield "where", (("condition=bool[9,70]", "a=f32[70]", "b=f32[9,1]"), ())
    yield "gather", ((*ROWS, "index=i64[4]"), ())
    yield "scatter", ((*ROWS, "index=i64[4]", "values=f32[4,70]"), ("update=add",))
    yield "map", (ROWS, ("function=FILE:double",))
    yield "quantize", ((*ROWS, "scale=f32[9]"), ("axis=0",))
    yield "dequantize", (("q=i8[9,70]", "scale=f32[9]"), ("axis=0",))
    yield "matmul", (("a=f16[70,90]", "b=f16[90,50]"), ())
    yield "grouped_matmul", (("x=f16[70,64]", "weights=f16[3,64,32]", "ends=i32[3]"), ())
    yield "attention", (HEADS, ("causal=True",))
    yield "attention_grad", (SLOPES, ())
    yield "attention_ragged", ((*RAGGED, "k_offsets=i32[4]"), ())
    yield "attention_paged", ((*PAGED, "lengths=i32[3]"), ())
    for name in ("uniform", "normal", "bernoulli", "bits"):
        yield f"random.{name}", (("out=u32[70]" if name == "bits" else "out=f32[70]",), ("seed=1",))


def sized() -> Iterator[tuple[str, Words]]:
    """Functions of one, two and three axes."""
    for axes, image in IMAGES.items():
        for name in ("max_pool", "avg_pool"):
            yield f"{name}{axes}", ((image,), ("kernel_size=3",))
        for name in ("adaptive_max_pool", "adaptive_avg_pool"):
            yield f"{name}{axes}", ((image,), ("output_size=2",))
        yield f"conv{axes}", ((image, WEIGHTS[axes]), ())
        yield f"conv_transpose{axes}", ((image, TURNED[axes]), ())
        given = (WEIGHTS[axes], GRADS[axes])
        yield f"conv{axes}_input_grad", (given, (f"input_size={SIZES[axes]}",))
        given = (image, GRADS[axes])
        yield f"conv{axes}_weight_grad", (given, (f"weight_size=({FILTERS[axes]})",))


WORDS = dict(words())
LAUNCHES_NOTHING = {"prepack"}
"""It makes what `conv2d` takes; its launches are those of `map` and `transpose`."""


def public(module: Any) -> set[str]:
    """The functions that users call."""
    return {
        name
        for name in dir(module)
        if inspect.isfunction(getattr(module, name)) and not name.startswith("_")
    }


def test_every_function_is_here():
    drawn = {f"random.{name}" for name in public(random) - {"seed"}}
    assert public(kernels) | drawn == set(WORDS) | LAUNCHES_NOTHING


@pytest.mark.parametrize("name", WORDS)
def test_text(name: str, cli: Callable[..., Any], kernels: str):
    """Of a target that is drawn anew for each run: all of them would take minutes."""
    target = SystemRandom().choice(TARGETS)
    given, options = WORDS[name]
    command = ["inspect", f"cubepy.kernels:{name}", "--target", target, "--json"]
    command += [word for spec in given for word in ("--arg", spec)]
    command += [word for each in options for word in ("-c", each.replace("FILE", kernels))]
    found = cli(*command)
    assert found.status == 0, (target, found.err)
    assert SIGNS[target.partition(":")[0]] in found.json["text"], target
    assert any("cubepy/kernels/" in row["file"] for row in found.json["map"]), target
