"""The built-in names of the kernel language, as users import them; what they mean in kernels.

These are stubs: inside kernels the frontend replaces each by operations. Outside, functions of
numbers compute in f64, and everything else raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeVar

from cubepy.errors import Error
from cubepy.ir import ops, types
from cubepy.ir.types import DType
from cubepy.lang.dtypes import (
    bf16,
    bool_,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:

    class Line(Any):
        """To type checkers `cp.Line[...]` is a class, in annotations as in kernels."""

        def __class_getitem__(cls, item: Any) -> Any: ...
        def __new__(cls, *values: Any) -> Any: ...

else:
    Line = types.Line

BUILTINS: dict[str, Any] = {}
"""Every stub by its name; the frontend has a handler for each."""


def _builtin(function: F) -> F:
    BUILTINS[function.__name__] = function
    function.__cubepy_builtin__ = function.__name__  # type: ignore[attr-defined]
    return function


def _only_inside(name: str) -> Any:
    raise Error(f"cp.{name} works inside kernels only")


def _number(row: ops.OpDef, *values: Any) -> Any:
    assert row.meaning is not None
    return row.meaning(f64, *(float(v) for v in values))


class Position:
    """A position or extent of the launch; an index inside kernels."""

    def __init__(self, name: str, doc: str) -> None:
        self.name, self.__doc__ = name, doc

    def __repr__(self) -> str:
        return f"cp.{self.name}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _only_inside(self.name)


POSITIONS: dict[str, Any] = {}


def _position(name: str, doc: str) -> Any:
    POSITIONS[name] = Position(name, doc)
    return POSITIONS[name]


ABSOLUTE_POS = _position(
    "ABSOLUTE_POS", "Position of the unit in the launch: CUBE_POS * CUBE_DIM + UNIT_POS."
)
ABSOLUTE_POS_X = _position("ABSOLUTE_POS_X", "CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X.")
ABSOLUTE_POS_Y = _position("ABSOLUTE_POS_Y", "CUBE_POS_Y * CUBE_DIM_Y + UNIT_POS_Y.")
ABSOLUTE_POS_Z = _position("ABSOLUTE_POS_Z", "CUBE_POS_Z * CUBE_DIM_Z + UNIT_POS_Z.")
UNIT_POS = _position("UNIT_POS", "Position of the unit in its cube, X fastest.")
UNIT_POS_X = _position("UNIT_POS_X", "Position of the unit in its cube, along X.")
UNIT_POS_Y = _position("UNIT_POS_Y", "Position of the unit in its cube, along Y.")
UNIT_POS_Z = _position("UNIT_POS_Z", "Position of the unit in its cube, along Z.")
CUBE_POS = _position("CUBE_POS", "Position of the cube in the grid, X fastest.")
CUBE_POS_X = _position("CUBE_POS_X", "Position of the cube in the grid, along X.")
CUBE_POS_Y = _position("CUBE_POS_Y", "Position of the cube in the grid, along Y.")
CUBE_POS_Z = _position("CUBE_POS_Z", "Position of the cube in the grid, along Z.")
CUBE_DIM = _position("CUBE_DIM", "Units in a cube (comptime).")
CUBE_DIM_X = _position("CUBE_DIM_X", "Units in a cube along X (comptime).")
CUBE_DIM_Y = _position("CUBE_DIM_Y", "Units in a cube along Y (comptime).")
CUBE_DIM_Z = _position("CUBE_DIM_Z", "Units in a cube along Z (comptime).")
CUBE_COUNT = _position("CUBE_COUNT", "Cubes in the grid.")
CUBE_COUNT_X = _position("CUBE_COUNT_X", "Cubes in the grid along X.")
CUBE_COUNT_Y = _position("CUBE_COUNT_Y", "Cubes in the grid along Y.")
CUBE_COUNT_Z = _position("CUBE_COUNT_Z", "Cubes in the grid along Z.")
PLANE_DIM = _position("PLANE_DIM", "Units in a plane (comptime); 1 on a CPU.")
PLANE_POS = _position("PLANE_POS", "Position of the plane in its cube.")
PLANE_COUNT = _position("PLANE_COUNT", "Planes in a cube (comptime).")
UNIT_POS_PLANE = _position("UNIT_POS_PLANE", "Position of the unit in its plane.")


# Comptime tools


@_builtin
def comptime(value: Any) -> Any:
    """The value, which must be known while the kernel is specialised; E112 otherwise."""
    return value


@_builtin
def unroll(iterable: Any) -> Any:
    """`for i in cp.unroll(range(n))`: the body is repeated at comptime, `i` is a Python int."""
    return iterable


@_builtin
def static_assert(condition: Any, message: str = "") -> None:
    """Stop the compilation with E114 and `message` unless the comptime condition holds."""
    assert condition, message


@_builtin
def target() -> Any:
    """What the kernel is compiled for: a comptime record.

    Fields: `kind arch plane_dim line_bytes shared_bytes cache_bytes features`.
    """
    return _only_inside("target")


# Numbers


@_builtin
def where(mask: Any, a: Any, b: Any) -> Any:
    """`a` where `mask` is true, else `b`, per lane; both are evaluated."""
    return a if mask else b


@_builtin
def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once. Floats."""
    return _number(ops.FMA, a, b, c)


@_builtin
def bitcast(value: Any, dtype: Any) -> Any:
    """The bits of `value` as another type of the same size.

    Lanes may become more or fewer lanes of another size, the first of which has the lowest bits:
    eight of bf16 are four of u32, two are one u32, and a u32 is two of bf16. A `cp.Line` as `dtype`
    says how many lanes there are.
    """
    return _only_inside("bitcast")


@_builtin
def div_trunc(a: Any, b: Any) -> Any:
    """C's integer division, towards zero; x / 0 is 0."""
    return _only_inside("div_trunc")


@_builtin
def rem_trunc(a: Any, b: Any) -> Any:
    """C's integer remainder, with the sign of `a`; x % 0 is 0."""
    return _only_inside("rem_trunc")


@_builtin
def mul_hi(a: Any, b: Any) -> Any:
    """The upper half of the double-width product of integers."""
    return _only_inside("mul_hi")


@_builtin
def popcount(a: Any) -> Any:
    """Number of set bits of an integer."""
    return _only_inside("popcount")


@_builtin
def clz(a: Any) -> Any:
    """Leading zero bits of an integer; its width for 0."""
    return _only_inside("clz")


@_builtin
def ctz(a: Any) -> Any:
    """Trailing zero bits of an integer; its width for 0."""
    return _only_inside("ctz")


@_builtin
def copysign(a: Any, b: Any) -> Any:
    """`a` with the sign of `b`. Floats."""
    return _number(ops.COPYSIGN, a, b)


@_builtin
def isnan(a: Any) -> Any:
    """True for NaN, per lane."""
    return a != a


@_builtin
def isinf(a: Any) -> Any:
    """True for the two infinities, per lane; false for integers."""
    return math.isinf(a)


@_builtin
def isfinite(a: Any) -> Any:
    """True for what is neither an infinity nor NaN, per lane; true for integers."""
    return math.isfinite(a)


@_builtin
def minimum(a: Any, b: Any) -> Any:
    """IEEE 754 minimum: NaN propagates, -0 < +0. Same as `min` inside kernels."""
    return _number(ops.MIN, a, b)


@_builtin
def maximum(a: Any, b: Any) -> Any:
    """IEEE 754 maximum: NaN propagates, -0 < +0. Same as `max` inside kernels."""
    return _number(ops.MAX, a, b)


def _with_parameters(function: Any, names: str) -> Any:
    """`function` with parameters that help() and error messages show."""
    parameters = [Parameter(n, Parameter.POSITIONAL_ONLY) for n in names.split()]
    function.__signature__ = Signature(parameters)
    return function


def _elementary(name: str, parameters: str = "value") -> Callable[..., Any]:
    row = ops.TABLE[name]

    def function(*values: Any) -> Any:
        return _number(row, *values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{row.doc} Integers convert to f32. Rounds to the operands' type."
    return _builtin(_with_parameters(function, parameters))


sqrt = _elementary("sqrt")
floor = _elementary("floor")
ceil = _elementary("ceil")
trunc = _elementary("trunc")
rint = _elementary("rint")
exp = _elementary("exp")
exp2 = _elementary("exp2")
exp10 = _elementary("exp10")
expm1 = _elementary("expm1")
log = _elementary("log")
log2 = _elementary("log2")
log10 = _elementary("log10")
log1p = _elementary("log1p")
sin = _elementary("sin")
cos = _elementary("cos")
tan = _elementary("tan")
asin = _elementary("asin")
acos = _elementary("acos")
atan = _elementary("atan")
atan2 = _elementary("atan2", "y x")
sinh = _elementary("sinh")
cosh = _elementary("cosh")
tanh = _elementary("tanh")
asinh = _elementary("asinh")
acosh = _elementary("acosh")
atanh = _elementary("atanh")
erf = _elementary("erf")
erfc = _elementary("erfc")
pow = _elementary("pow", "base exponent")
rsqrt = _elementary("rsqrt")
cbrt = _elementary("cbrt")
hypot = _elementary("hypot", "x y")
sigmoid = _elementary("sigmoid")


# Lines


@_builtin
def any_(mask: Any) -> Any:
    """Whether any lane of a mask is true: one bool; of a scalar, the scalar."""
    return bool(mask)


@_builtin
def concat(a: Any, b: Any) -> Any:
    """The lanes of `a`, then those of `b`, as one line."""
    return _only_inside("concat")


@_builtin
def dot(a: Any, b: Any, c: Any) -> Any:
    """c plus sums of products of neighbouring lanes: of four i8 or u8 in exact i32, which wraps, or
    of two bf16 in f32. Lines of 4 n lanes of bytes, or 2 n of bf16, and n sums; or one sum.

    Of bf16, first the odd lane's product, then the even one's is added in a step that rounds once;
    factors and sums below 2**-126 may count as 0, as processors with such an instruction take them.
    """
    return _only_inside("dot")


# Memory


@_builtin
def load(
    x: Any, index: Any, line: int | None = None, fill: Any = 0, hint: str | None = None
) -> Any:
    """`x[index]`; with `line=n`, n elements of a scalar tensor from `index` on, along its axis of
    unit stride (the last, if several). Lanes outside give `fill`. `hint="stream"` says that nobody
    reads the data again soon.
    """
    return _only_inside("load")


@_builtin
def store(x: Any, index: Any, value: Any, hint: str | None = None, whole: bool = False) -> None:
    """`x[index] = value`; a line may be stored to a scalar tensor at any offset.

    Lanes outside the axis are not stored; `whole=True` promises that there are none, which saves
    the test. `hint="stream"` says that nobody reads the data soon.
    """
    _only_inside("store")


@_builtin
def prefetch(x: Any, index: Any, level: int = 1) -> None:
    """A hint that `x[index]` will be read soon; the index may be out of bounds.

    `level` is the cache that it is brought to: 1 is the nearest, where little else should be; 2 is
    better for data that is read several times, or late.
    """
    _only_inside("prefetch")


@_builtin
def misalignment(x: Any, index: Any, line: int) -> Any:
    """How many elements `x[index]` lies behind an address that suits aligned lines of `line`."""
    return _only_inside("misalignment")


@_builtin
def shared(shape: Any, dtype: Any) -> Any:
    """Memory of the cube: a tensor, uninitialised, seen by all its units."""
    return _only_inside("shared")


@_builtin
def local(shape: Any, dtype: Any, fill: Any = None) -> Any:
    """Memory of the unit: a tensor, in registers where indices are comptime."""
    return _only_inside("local")


# Synchronisation


@_builtin
def sync_cube() -> None:
    """All units of the cube arrive before any goes on."""
    _only_inside("sync_cube")


@_builtin
def sync_plane() -> None:
    """All units of the plane arrive before any goes on."""
    _only_inside("sync_plane")


@_builtin
def sync_units(barrier: int, count: int) -> None:
    """`count` units of the cube, in whole planes, arrive at `barrier` before any goes on.

    For branches that whole planes take: each part of the cube uses a barrier of its own, 1 to 15.
    Both numbers are comptime; `count` is a multiple of PLANE_DIM, at most CUBE_DIM. A unit that
    returned does not arrive. Targets without such barriers take those that all units reach, and
    refuse others: `UnsupportedError` E310.
    """
    _only_inside("sync_units")


@_builtin
def sync_storage() -> None:
    """Order this unit's accesses to global memory."""
    _only_inside("sync_storage")


# Diagnosis


@_builtin
def print_(
    *values: Any, sep: str | None = " ", end: str | None = "\n", flush: bool = False
) -> None:
    """Write values on standard output, one line for each unit; `print` inside kernels means it.

    Takes numbers, lines, comptime text and f-strings, whose formats are those that C has too:
    `{x:8.3f}`, `{n:>5d}`, `{bits:08x}`. The order of units is not defined; what one call writes
    is not torn apart. `flush` is ignored.
    """
    print(*values, sep=sep, end=end, flush=flush)


# Planes: every unit of the plane takes part


def _plane(name: str, doc: str, parameters: str = "value") -> Callable[..., Any]:
    def function(*values: Any) -> Any:
        return _only_inside(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} Every unit of the plane must arrive; on a CPU a plane is one unit."
    return _builtin(_with_parameters(function, parameters))


plane_sum = _plane("plane_sum", "Sum of a number over the plane, in all its units.")
plane_prod = _plane("plane_prod", "Product of a number over the plane, in all its units.")
plane_min = _plane("plane_min", "Minimum over the plane; NaN propagates.")
plane_max = _plane("plane_max", "Maximum over the plane; NaN propagates.")
plane_inclusive_sum = _plane("plane_inclusive_sum", "Sum over the lanes up to the own one.")
plane_exclusive_sum = _plane("plane_exclusive_sum", "Sum over the lanes before the own one.")
plane_inclusive_prod = _plane("plane_inclusive_prod", "Product of the lanes up to the own one.")
plane_exclusive_prod = _plane("plane_exclusive_prod", "Product of the lanes before the own one.")
plane_all = _plane("plane_all", "Whether a condition holds in all units of the plane.")
plane_any = _plane("plane_any", "Whether a condition holds in any unit of the plane.")
plane_ballot = _plane("plane_ballot", "A u64 whose bit k is the condition in lane k.")
plane_elect = _plane("plane_elect", "True in one unit of the plane, the first that is active.", "")
plane_broadcast = _plane("plane_broadcast", "The value of one lane.", "value lane")
plane_shuffle = _plane(
    "plane_shuffle",
    "The value of a lane of each unit's own choice; the own value where there is no such lane.",
    "value lane",
)
plane_shuffle_xor = _plane("plane_shuffle_xor", "The value of lane own ^ mask.", "value mask")
plane_shuffle_up = _plane(
    "plane_shuffle_up",
    "The value of lane own - delta; the own value where there is none.",
    "value delta",
)
plane_shuffle_down = _plane(
    "plane_shuffle_down",
    "The value of lane own + delta; the own value where there is none.",
    "value delta",
)


__all__ = [
    "ABSOLUTE_POS",
    "ABSOLUTE_POS_X",
    "ABSOLUTE_POS_Y",
    "ABSOLUTE_POS_Z",
    "CUBE_COUNT",
    "CUBE_COUNT_X",
    "CUBE_COUNT_Y",
    "CUBE_COUNT_Z",
    "CUBE_DIM",
    "CUBE_DIM_X",
    "CUBE_DIM_Y",
    "CUBE_DIM_Z",
    "CUBE_POS",
    "CUBE_POS_X",
    "CUBE_POS_Y",
    "CUBE_POS_Z",
    "PLANE_COUNT",
    "PLANE_DIM",
    "PLANE_POS",
    "UNIT_POS",
    "UNIT_POS_PLANE",
    "UNIT_POS_X",
    "UNIT_POS_Y",
    "UNIT_POS_Z",
    "DType",
    "Line",
    "acos",
    "acosh",
    "any_",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bf16",
    "bitcast",
    "bool_",
    "cbrt",
    "ceil",
    "clz",
    "comptime",
    "concat",
    "copysign",
    "cos",
    "cosh",
    "ctz",
    "div_trunc",
    "dot",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "hypot",
    "i8",
    "i16",
    "i32",
    "i64",
    "isfinite",
    "isinf",
    "isnan",
    "load",
    "local",
    "log",
    "log1p",
    "log2",
    "log10",
    "maximum",
    "minimum",
    "misalignment",
    "mul_hi",
    "plane_all",
    "plane_any",
    "plane_ballot",
    "plane_broadcast",
    "plane_elect",
    "plane_exclusive_prod",
    "plane_exclusive_sum",
    "plane_inclusive_prod",
    "plane_inclusive_sum",
    "plane_max",
    "plane_min",
    "plane_prod",
    "plane_shuffle",
    "plane_shuffle_down",
    "plane_shuffle_up",
    "plane_shuffle_xor",
    "plane_sum",
    "popcount",
    "pow",
    "prefetch",
    "rem_trunc",
    "rint",
    "rsqrt",
    "shared",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "static_assert",
    "store",
    "sync_cube",
    "sync_plane",
    "sync_storage",
    "sync_units",
    "tan",
    "tanh",
    "target",
    "trunc",
    "u8",
    "u16",
    "u32",
    "u64",
    "unroll",
    "where",
]
