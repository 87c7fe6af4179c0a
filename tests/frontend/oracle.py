"""The same function, run by Python itself: one call for each unit, on NumPy arrays.

What a kernel of the language means is what Python and NumPy do with its text, so `check` compares
both, with a poisoned output between guard bands.
"""

from __future__ import annotations

import math
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.lang.function import CubeFunction
from tests.guarded import Guarded

KINDS = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bool_": np.bool_,
}  # fmt: skip


def _where(mask: Any, a: Any, b: Any) -> Any:
    return a if mask else b


def _static_assert(condition: Any, message: str = "") -> None:
    assert condition, message


def _load(x: Any, index: Any) -> Any:
    return x[index]


def _store(x: Any, index: Any, value: Any) -> None:
    x[index] = value


_NUMPY_NAMES = ("sqrt", "floor", "ceil", "trunc", "minimum", "maximum")
_TOOLS = {
    "unroll": lambda items: items,
    "comptime": lambda value: value,
    "static_assert": _static_assert,
    "load": _load,
    "store": _store,
    "where": _where,
    "isnan": math.isnan,
    "cube": cp.cube,
    **{name: getattr(np, name) for name in _NUMPY_NAMES},
}


def fake_module(unit: int) -> SimpleNamespace:
    """What `cp` is to a function that Python runs as a unit."""
    positions = {"ABSOLUTE_POS": unit, "UNIT_POS": unit, "CUBE_POS": 0, "PLANE_DIM": 1}
    return SimpleNamespace(**positions, **KINDS, **_TOOLS)


def plain(value: Any, module: SimpleNamespace, known: dict[int, Any]) -> Any:
    """A function with `cp` replaced by `module`, in itself and in all functions that it uses."""
    if isinstance(value, CubeFunction):
        value = value.function
    is_ours = isinstance(value, FunctionType) and value.__module__.split(".")[0] in (
        "tests",
        "cell",
    )
    if not is_ours:
        return value
    if id(value) in known:
        return known[id(value)]
    scope = {"__builtins__": value.__globals__["__builtins__"], "__name__": "cell"}
    cells = tuple(CellType() for _ in value.__closure__ or ())
    result = FunctionType(value.__code__, scope, value.__name__, value.__defaults__, cells)
    result.__kwdefaults__ = value.__kwdefaults__
    known[id(value)] = result
    for name in _names_in(value.__code__) & set(value.__globals__):
        scope[name] = module if name == "cp" else plain(value.__globals__[name], module, known)
    for cell, original in zip(cells, value.__closure__ or (), strict=True):
        content = original.cell_contents
        cell.cell_contents = module if content is cp else plain(content, module, known)
    return result


def _names_in(code: Any) -> set[str]:
    inner = [_names_in(c) for c in code.co_consts if hasattr(c, "co_names")]
    return set(code.co_names).union(*inner)


def run_in_python(kernel: Any, units: int, *args: Any) -> None:
    """Call the function of `kernel` once for each unit."""
    with np.errstate(all="ignore"):
        for unit in range(units):
            module, known = fake_module(unit), {}
            function = plain(kernel, module, known)
            function(*[plain(a, module, known) for a in args])


def check(
    kernel: Any, *args: Any, shape: Any = (33,), dtype: Any = np.int32, units: int | None = None
) -> np.ndarray:
    """Run `kernel(*args, out)` on the device and in Python; gives the output."""
    out = Guarded(shape, dtype)
    expected = out.array.copy()
    units = math.prod(expected.shape) if units is None else units
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    run_in_python(kernel, units, *args, expected)
    kernel[units, 1](*kept, out.array)
    for given, used in zip(args, kept, strict=True):
        if isinstance(given, np.ndarray):
            np.testing.assert_array_equal(given, used)
    out.check(expected)
    return out.array


def check_one_unit(function: Any, **options: Any) -> None:
    """Compare what one unit of `function(x, out)` puts into `out[0]`, which is 0, for the numbers
    from 0 to 8. `options`: of `configure`."""
    x, expected, found = np.arange(9.0), np.zeros(1), np.zeros(1)
    function(x, expected)
    cp.cube(function).configure(**options)[1, 1](x, found)
    assert found[0] == expected[0]
