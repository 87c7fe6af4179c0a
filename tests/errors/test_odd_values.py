"""Odd values everywhere in a launch: each is taken, or refused by a typed and short error."""

import datetime
import decimal
import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp


class Colour(enum.Enum):
    RED = 1


ODD: dict[str, Any] = {
    "none": None,
    "dict": {},
    "set": {1},
    "object": object(),
    "class": int,
    "module": np,
    "complex": 1j,
    "decimal": decimal.Decimal(1),
    "date": datetime.date(2020, 1, 1),
    "text": "x",
    "bytes": b"x",
    "text array": np.array(["a"]),
    "complex array": np.array([1j]),
    "date array": np.array(["2020-01-01"], "M8[D]"),
    "structured array": np.zeros(2, [("a", "i4")]),
    "array of 20 axes": np.ones((1,) * 20, np.float32),
    "NumPy text": np.str_("a"),
    "NumPy date": np.datetime64("2020"),
    "NumPy complex": np.complex64(1),
    "huge": 2**70,
    "huge negative": -(2**70),
    "nan": float("nan"),
    "list": [1],
    "mixed tuple": (1, "a"),
    "tuple of None": (None,),
    "nested": ((1, [2]),),
    "range": range(3),
    "lambda": lambda: 1,
    "builtin": print,
    "enum": Colour.RED,
    "slice": slice(1),
    "ellipsis": ...,
    "interface of nothing": types.SimpleNamespace(__array_interface__={}),
    "interface that is a number": types.SimpleNamespace(__array_interface__=5),
    "buffer": memoryview(b"abc"),
}


@cp.cube
def copy(x, out):
    out[0] = x[0]


@cp.cube
def fill(out, value):
    out[0] = value


@cp.cube
def fill_float(out, value: cp.f32):
    out[0] = value


@cp.cube
def fill_integer(out, value: int):
    out[0] = value


@cp.cube
def ignore(out, value: cp.Comptime):
    out[0] = 1


ARRAY = np.ones(4, np.float32)
PLACES: dict[str, Callable[[Any], Any]] = {
    "an input": lambda odd: copy[1, 1](odd, ARRAY),
    "an output": lambda odd: copy[1, 1](ARRAY, odd),
    "a number": lambda odd: fill[1, 1](ARRAY, odd),
    "a float": lambda odd: fill_float[1, 1](ARRAY, odd),
    "an integer": lambda odd: fill_integer[1, 1](ARRAY, odd),
    "a comptime value": lambda odd: ignore[1, 1](ARRAY, odd),
    "bound": lambda odd: fill[1, 1].bind(ARRAY, odd),
    "a keyword": lambda odd: copy[1, 1](ARRAY, ARRAY, extra=odd),
    "the grid": lambda odd: copy[odd](ARRAY, ARRAY),
    "the cube count": lambda odd: copy[odd, 1](ARRAY, ARRAY),
    "the cube dim": lambda odd: copy[1, odd](ARRAY, ARRAY),
    "over": lambda odd: copy.over(odd),
    "the cube dim of over": lambda odd: copy.over(4, cube_dim=odd)(ARRAY, ARRAY),
    "line_size": lambda odd: copy.configure(line_size=odd)[1, 1](ARRAY, ARRAY),
    "plane_dim": lambda odd: copy.configure(plane_dim=odd)[1, 1](ARRAY, ARRAY),
    "device": lambda odd: copy.configure(device=odd)[1, 1](ARRAY, ARRAY),
    "inspected": lambda odd: copy.inspect(odd, "f32[4]", stage="ir"),
    "the target": lambda odd: copy.inspect("f32[4]", "f32[4]", target=odd, stage="ir"),
    "a specification": cp.spec,
}
ARRAYS_ARE_NO_OPTIONS = ("line_size", "the target")


@pytest.mark.parametrize("place", PLACES)
def test_it_is_taken_or_refused(place: str):
    for name, odd in ODD.items():
        if isinstance(odd, np.ndarray) and place in ARRAYS_ARE_NO_OPTIONS:
            continue  # NumPy itself objects to comparing them
        try:
            PLACES[place](odd)
        except cp.Error as error:
            assert error.code not in (None, "E119"), f"{name}: {error}"
            assert len(str(error).splitlines()) <= 12, name
        except Exception as error:
            raise AssertionError(f"{name} as {place}: {error!r}") from error
