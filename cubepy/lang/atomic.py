"""`cp.atomic`: operations that other units cannot come between, on elements of a tensor.

Relaxed: they order nothing else. Each gives the old value. `index` is as in `x[index]`; float
sums depend on the order of the units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.errors import Error

NAMES: dict[str, Any] = {}


def _atomic(name: str, doc: str) -> Callable[..., Any]:
    def function(x: Any, index: Any, *values: Any) -> Any:
        raise Error(f"cp.atomic.{name} works inside kernels only")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__cubepy_builtin__ = f"atomic.{name}"  # type: ignore[attr-defined]
    NAMES[name] = function
    return function


add = _atomic("add", "`add(x, index, value)`: x[index] += value.")
sub = _atomic("sub", "`sub(x, index, value)`: x[index] -= value.")
mul = _atomic("mul", "`mul(x, index, value)`: x[index] *= value.")
min = _atomic("min", "`min(x, index, value)`: x[index] = min(x[index], value).")
max = _atomic("max", "`max(x, index, value)`: x[index] = max(x[index], value).")
and_ = _atomic("and_", "`and_(x, index, value)`: x[index] &= value. Integers.")
or_ = _atomic("or_", "`or_(x, index, value)`: x[index] |= value. Integers.")
xor = _atomic("xor", "`xor(x, index, value)`: x[index] ^= value. Integers.")
exchange = _atomic("exchange", "`exchange(x, index, value)`: x[index] = value.")
cas = _atomic("cas", "`cas(x, index, expected, value)`: x[index] = value where it was `expected`.")
load = _atomic("load", "`load(x, index)`: the value, whole.")
store = _atomic("store", "`store(x, index, value)`: writes the value, whole.")
