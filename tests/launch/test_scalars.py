"""Numbers as arguments: types that they take, ranges, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded, assert_same

INTEGERS = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
}
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def setter(dtype: Any) -> Any:
    @cp.cube
    def put(out, value: dtype):  # pyright: ignore[reportInvalidTypeForm]
        cp.static_assert(value.dtype == dtype)
        out[0] = value

    return put


SETTERS = {name: setter(getattr(cp, name)) for name in (*INTEGERS, *FLOATS, "bool_")}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_at_their_limits(name: str):
    info = np.iinfo(INTEGERS[name])
    launch = SETTERS[name][1, 1]
    for value in (info.min, info.max, 0, 1, True, INTEGERS[name](7), np.uint8(3)):
        out = Guarded(1, INTEGERS[name])
        for _ in range(2):
            launch(out.array, value)
        out.check([int(value)])
    for value in (info.min - 1, info.max + 1, 2**70, -(2**70)):
        out = Guarded(1, INTEGERS[name])
        for _ in range(2):
            with pytest.raises(cp.LaunchError, match=rf"E407.*`value` = {value}.*{name}"):
                launch(out.array, value)
        assert out.is_untouched
    for value in (1.0, 2.5, math.nan, np.float32(1)):
        with pytest.raises(cp.LaunchError, match="E402.*`value`.*float"):
            launch(out.array, value)


@pytest.mark.parametrize("name", FLOATS)
def test_floats_round_to_nearest(name: str):
    kind = FLOATS[name]
    for value in (
        0.0,
        -0.0,
        1 / 3,
        1e-7,
        65504.0,
        1e300,
        math.inf,
        -math.inf,
        math.nan,
        3,
        -(2**20),
        True,
        np.float64(0.1),
        np.float32(0.1),
        np.int32(5),
    ):
        out = Guarded(1, kind)
        SETTERS[name][1, 1](out.array, value)
        with np.errstate(over="ignore"):
            expected = np.array([value], np.float64).astype(kind)
        out.check(expected)


def test_bools():
    for value in (True, False, 0, 1, 5, 0.0, 0.5, np.bool_(True)):
        out = Guarded(1, np.bool_)
        SETTERS["bool_"][1, 1](out.array, value)
        assert out.array[0] == bool(value)


@pytest.mark.parametrize(
    ("tensor", "value", "expected"),
    [
        (np.float32, 1.5, cp.f32),
        (np.float64, 1.5, cp.f64),
        (np.float16, 1.5, cp.f32),
        (np.int32, 1.5, cp.f32),
        (np.int32, 3, cp.i64),
        (np.float64, 3, cp.i64),
        (np.float32, True, cp.bool_),
        (np.float32, np.float64(2), cp.f64),
        (np.float64, np.float32(2), cp.f32),
        (np.float32, np.float16(2), cp.f16),
        (np.float32, np.int8(2), cp.i8),
        (np.float32, np.bool_(1), cp.bool_),
        (np.float32, np.uint64(2**63), cp.u64),
        (ml_dtypes.bfloat16, 2.0, cp.f32),
    ],
)
def test_types_of_unannotated_numbers(tensor: Any, value: Any, expected: Any):
    seen: list[Any] = []

    @cp.cube
    def kernel(x, value, out):
        note(value.dtype)
        out[0] = cp.f64(value)

    def note(dtype):
        seen.append(dtype)

    out = np.zeros(1)
    kernel[1, 1](np.zeros(1, tensor), value, out)
    wanted = expected if not isinstance(value, float) or isinstance(value, np.generic) else cp.f64
    assert seen[-1] in (expected, wanted)
    assert out[0] == float(value)


def test_a_float_takes_the_widest_float_of_the_tensors():
    @cp.cube
    def kernel(x, value, out):
        out[0] = value

    for kind in (np.float32, np.float64):
        out = np.zeros(1, kind)
        kernel[1, 1](np.zeros(1, np.float32), 0.1, out)
        assert out[0] == kind(0.1)


@pytest.mark.parametrize("annotation", [int, float, bool])
def test_python_annotations(annotation: Any):
    @cp.cube
    def kernel(value: annotation, out):  # pyright: ignore[reportInvalidTypeForm]
        out[0] = value

    for value in (0, 1, 5, True):
        out = np.zeros(1, np.float64)
        kernel[1, 1](value, out)
        assert out[0] == annotation(value)
    if annotation is not int:
        out = np.zeros(1, np.float64)
        kernel[1, 1](0.1, out)
        assert out[0] == annotation(0.1)
    else:
        with pytest.raises(cp.LaunchError, match="E402"):
            kernel[1, 1](0.5, out)


# Structures


class Window(NamedTuple):
    start: int
    scale: cp.f32
    name: str = "none"


@dataclass(frozen=True)
class Job:
    x: cp.Tensor[cp.f32]
    window: Window
    taps: cp.Comptime[int] = 2
    negate: bool = False

    def weight(self, k):
        return self.window.scale * (k + 1)


@cp.cube
def run(job: Job, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        total = 0.0
        for k in cp.unroll(range(job.taps)):
            if i + k + job.window.start < job.x.size:
                total += job.x[i + k + job.window.start] * job.weight(k)
        out[i] = -total if job.negate else total


@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("negate", [False, True])
def test_structures(taps: int, negate: bool):
    x = np.arange(10, dtype=np.float32)
    for start in (0, 2):
        out = Guarded(10)
        run.over(10)(Job(x, Window(start, 0.5), taps, negate), out.array)
        padded = np.concatenate([x, np.zeros(10, np.float32)])
        expected = sum(
            padded[start + k : start + k + 10] * np.float32(0.5) * (k + 1) for k in range(taps)
        )
        out.check(-expected if negate else expected)


def test_structures_are_checked_like_arguments():
    x = np.arange(4, dtype=np.float64)
    out = Guarded(4)
    with pytest.raises(cp.LaunchError, match=r"E402.*`job\.x`.*f64.*f32"):
        run.over(4)(Job(x, Window(0, 1.0)), out.array)
    with pytest.raises(cp.LaunchError, match=r"E405.*`job\.x`"):
        run.over(4)(Job(out.array[:4][::-1], Window(0, 1.0)), out.array)
    assert out.is_untouched


def test_tuples():
    @cp.cube
    def kernel(pair, out):
        a, (b, c) = pair
        out[0], out[1], out[2] = a[0], b, c

    out = np.zeros(3, np.float64)
    kernel[1, 1]((np.full(1, 4.0), (5, np.float32(6))), out)
    assert_same(out, np.array([4.0, 5.0, 6.0]))


@cp.cube
def defaults(
    x,
    n: cp.Comptime[int] = None,  # pyright: ignore[reportArgumentType]
    flag: cp.Comptime[bool] = 0,  # pyright: ignore[reportArgumentType]
):
    x[0] = -1 if n is None else n
    x[1] = 1 if flag else 0


def test_a_default_is_allowed_whatever_its_annotation_says():
    """As `None` is by many, for what is not given; any other value is checked."""
    x = np.zeros(2, np.int32)
    for given, expected in (((), (-1, 0)), ((None, 0), (-1, 0)), ((3, True), (3, 1))):
        for _ in range(3):
            defaults[1, 1](x, *given)
            assert tuple(x) == expected
    assert defaults.annotations["n"] == cp.Comptime[int]
    for wrong in ((1.5,), (1, None), (1, 1)):
        with pytest.raises(cp.LaunchError, match="E402"):
            defaults[1, 1](x, *wrong)
