"""Runs the expansions of `cubepy/lang/math` on NumPy arrays, with exact semantics and no compiler.

The modules' source is executed with the language's builtins replaced by the functions below. Values
are arrays (at least 1-d) of one dtype; Python literals are weak, as in the language (NEP 50).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.lang.math.table import HOMES

ROOT = Path(__file__).resolve().parents[2]
LITERALS = (bool, int, float)


def typed(*values: Any) -> tuple[Any, ...]:
    """The values with literals converted to the dtype of the others."""
    dtypes = {v.dtype for v in values if not isinstance(v, LITERALS)}
    assert len(dtypes) == 1, f"one dtype expected, not {dtypes} (of {values})"
    dtype = dtypes.pop()
    return tuple(np.asarray(v, dtype) if isinstance(v, LITERALS) else v for v in values)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b as a rounded sum and its exact error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b as a rounded product and its exact error (Dekker), barring over- and underflow."""

    def split(v: Any) -> tuple[Any, Any]:
        scaled = v * 134217729.0
        high = scaled - (scaled - v)
        return high, v - high

    product = a * b
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def sum_to_odd(a: Any, b: Any) -> Any:
    """a + b in f64, rounded to odd (Boldo & Melquiond): a later rounding then sees no tie."""
    total, rest = two_sum(a, b)
    bits = total.view(np.int64)
    inexact = (rest != 0) & np.isfinite(rest) & ((bits & 1) == 0)
    step = np.where((rest > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma_f32(a: Any, b: Any, c: Any) -> Any:
    product = a.astype(np.float64) * b.astype(np.float64)
    return sum_to_odd(product, c.astype(np.float64)).astype(np.float32)


def fma_f64(a: Any, b: Any, c: Any) -> Any:
    """Boldo & Melquiond's emulation, on significands so that nothing over- or underflows."""
    a, b, c = np.broadcast_arrays(a, b, c)
    (fa, ea), (fb, eb), (fc, ec) = np.frexp(a), np.frexp(b), np.frexp(c)
    shift = np.where(c == 0, 0, ec.astype(np.int64) - (ea.astype(np.int64) + eb))
    product, rest = two_product(fa, fb)
    scaled = np.ldexp(fc, np.clip(shift, -300, 300))
    low, lower = two_sum(scaled, rest)
    high, middle = two_sum(product, low)
    tail = sum_to_odd(middle, lower)
    exponent = ea.astype(np.int64) + eb
    total = high + tail
    # In the denormal range the last addition must round at the right bit: leave it to ldexp.
    _, e = np.frexp(total)
    denormal = e + exponent < -1021
    odd = sum_to_odd(high, tail)
    result = np.ldexp(np.where(denormal, odd, total), np.clip(exponent, -2200, 2200))
    usual = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    usual &= shift < 300
    return np.where(usual, result, np.where((shift >= 300) & np.isfinite(a * b), c, a * b + c))


def fma(a: Any, b: Any, c: Any) -> Any:
    a, b, c = typed(a, b, c)
    return fma_f32(a, b, c) if a.dtype == np.float32 else fma_f64(a, b, c)


def where(mask: Any, a: Any, b: Any) -> Any:
    a, b = typed(a, b)
    return np.where(mask, a, b)


def bitcast(value: Any, target: Type) -> Any:
    assert value.dtype.itemsize == target.dtype.itemsize
    return np.ascontiguousarray(value).view(target.dtype)


def copysign(a: Any, b: Any) -> Any:
    return np.copysign(*typed(a, b))


def mul_hi(a: Any, b: Any) -> Any:
    """The upper 64 bits of u64 products, by 32-bit halves."""
    low = np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> 32, a & low, b >> 32, b & low
    middle = a_high * b_low + (a_low * b_low >> 32)
    return a_high * b_high + (middle >> 32) + ((middle & low) + a_low * b_high >> 32)


class Type:
    """A dtype name of the language: converts when called, and is bitcast's second operand."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, LITERALS):
            return np.asarray(value, self.dtype)
        return value.astype(self.dtype)


BUILTINS: dict[str, Any] = {
    "fma": fma,
    "where": where,
    "bitcast": bitcast,
    "copysign": copysign,
    "any_": np.any,
    "mul_hi": mul_hi,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "trunc": np.trunc,
    "rint": np.rint,
    "i32": Type(np.int32),
    "i64": Type(np.int64),
    "u32": Type(np.uint32),
    "u64": Type(np.uint64),
    "f32": Type(np.float32),
    "f64": Type(np.float64),
}


def load(module: str, loaded: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The names of a module of the expansions, executed over NumPy."""
    loaded = {} if loaded is None else loaded
    if module in loaded:
        return loaded[module]
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text())
    names: dict[str, Any] = {"__name__": module}
    body = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cubepy"):
            for alias in node.names:
                names[alias.asname or alias.name] = imported(str(node.module), alias.name, loaded)
        else:
            body.append(node)
    exec(compile(ast.Module(body, []), str(path), "exec"), names)
    loaded[module] = names
    return names


def imported(module: str, name: str, loaded: dict[str, dict[str, Any]]) -> Any:
    if module == "cubepy.lang.builtins":
        return BUILTINS[name]
    if module == "cubepy.lang.math":
        return type(name, (), load(f"{module}.{name}", loaded))
    return load(module, loaded)[name]


def expansions() -> dict[tuple[str, str], Callable[..., Any]]:
    """Every expansion, callable on arrays, with NumPy's warnings off."""

    def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arrays: Any) -> Any:
            with np.errstate(all="ignore"):
                return function(*arrays)

        return call

    homes = [home + suffix for home in HOMES for suffix in ("", "_f64")]
    tables = [load(f"cubepy.lang.math.{home}")["EXPANSIONS"] for home in homes]
    return {key: quiet(function) for table in tables for key, function in table.items()}


def ulp_errors(got: Any, exact: Any) -> Any:
    """|got - exact| in ULP of `got`'s type (Muller 2005); `exact` has a wider type.

    NaN against NaN and equal infinities are 0, any other mismatch of NaN is infinite. An infinite
    result counts as the power of two where the type ends, and so does an exact value beyond it.
    """
    info = np.finfo(got.dtype)
    wide = exact.dtype
    with np.errstate(all="ignore"):
        edge = np.ldexp(np.asarray(1, wide), info.maxexp)
        value = np.where(np.isinf(got), np.copysign(edge, got), got.astype(wide))
        exact_value = np.clip(exact, -edge, edge)
        significand, exponent = np.frexp(exact_value)
        exponent = np.where(np.abs(significand) == 0.5, exponent - 1, exponent)
        exponent = np.maximum(exponent, info.minexp + 1) - (info.nmant + 1)
        error = np.abs(value - exact_value) / np.ldexp(np.ones((), wide), exponent)
    both = np.isnan(got) & np.isnan(exact)
    return np.where(both, 0, np.where(np.isnan(got) | np.isnan(exact), np.inf, error))
