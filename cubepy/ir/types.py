"""The types of KernelIR: scalars, lines of scalars, buffers and references to locals.

Pure data, standard library only. `DType` is also what users write (`cp.f32`): it compares equal to
the NumPy, torch and string spellings of the same type.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from operator import index as index_of
from typing import Any, SupportsIndex, TypeAlias, TypeGuard, TypeVar, overload

from cubepy.record import dataclass


class Kind(Enum):
    """The kinds of scalars; conversions are implicit only within a kind."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"


class Space(Enum):
    """Where a buffer lives: the device's memory, the cube's, or the unit's.

    A tensor map describes where elements lie, to the copy engine of CUDA devices.
    """

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    TENSOR_MAP = "tensor_map"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """A scalar type: `name` as printed, `kind`, size in `bits`, and its name in NumPy or torch.

    Calling one inside a kernel converts a value. Floats of less than 32 bits round to nearest even.
    """

    name: str
    kind: Kind
    bits: int
    numpy_name: str
    is_float: bool = False
    is_integer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind is Kind.FLOAT)
        object.__setattr__(self, "is_integer", self.kind in (Kind.INT, Kind.UINT))

    @property
    def itemsize(self) -> int:
        """Size in memory, in bytes."""
        return max(1, self.bits // 8)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        return find_dtype(other) is self

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return find_dtype, (self.name,)

    def __call__(self, value: Any) -> Any:
        """Convert a Python number as a kernel would; the result is a Python number."""
        from cubepy.ir.numbers import convert

        return convert(value, self)


bool_ = DType("bool_", Kind.BOOL, 1, "bool")
i8 = DType("i8", Kind.INT, 8, "int8")
i16 = DType("i16", Kind.INT, 16, "int16")
i32 = DType("i32", Kind.INT, 32, "int32")
i64 = DType("i64", Kind.INT, 64, "int64")
u8 = DType("u8", Kind.UINT, 8, "uint8")
u16 = DType("u16", Kind.UINT, 16, "uint16")
u32 = DType("u32", Kind.UINT, 32, "uint32")
u64 = DType("u64", Kind.UINT, 64, "uint64")
f16 = DType("f16", Kind.FLOAT, 16, "float16")
bf16 = DType("bf16", Kind.FLOAT, 16, "bfloat16")
f32 = DType("f32", Kind.FLOAT, 32, "float32")
f64 = DType("f64", Kind.FLOAT, 64, "float64")
f8e4m3 = DType("f8e4m3", Kind.FLOAT, 8, "float8_e4m3fn")
f8e5m2 = DType("f8e5m2", Kind.FLOAT, 8, "float8_e5m2")
index = DType("index", Kind.INT, 64, "")
"""Positions, shapes and ranges: signed, 64 bits; programs never wrap it."""
index32 = DType("index32", Kind.INT, 32, "")
"""An index of which `passes/narrow.py` has proved that it fits; it never wraps either."""
INDICES = (index, index32)

DTYPES: tuple[DType, ...] = (  # of programs: index32 is made by narrowing alone
    bool_,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    f16,
    bf16,
    f32,
    f64,
    f8e4m3,
    f8e5m2,
    index,
)
_BY_NAME: dict[str, DType] = {
    **{d.name: d for d in DTYPES},
    **{d.numpy_name: d for d in DTYPES if d.numpy_name},
    "half": f16,
    "float": f64,
    "double": f64,
    "int": i64,
    index32.name: index32,
}
_BY_CODE: dict[str, DType] = {
    **{f"|{code}": d for code, d in (("b1", bool_), ("i1", i8), ("u1", u8))},
    **{f"<i{d.itemsize}": d for d in (i16, i32, i64)},
    **{f"<u{d.itemsize}": d for d in (u16, u32, u64)},
    **{f"<f{d.itemsize}": d for d in (f16, f32, f64)},
}
"""What `np.dtype(...).str` gives. NumPy's codes without the order of bytes are not taken: its i8
has 64 bits."""
_PYTHON_TYPES: dict[object, DType] = {bool: bool_, int: i64, float: f64}


def find_dtype(spelling: object) -> DType | None:
    """The `DType` of a spelling (itself, NumPy, torch or ml_dtypes dtype, string); None if none."""
    if isinstance(spelling, DType):
        return spelling
    if isinstance(spelling, type) and spelling in _PYTHON_TYPES:
        return _PYTHON_TYPES[spelling]
    if isinstance(spelling, str):
        return _BY_NAME.get(spelling) or _BY_CODE.get(spelling)
    name = getattr(spelling, "name", None) or getattr(spelling, "__name__", None)
    if not isinstance(name, str):
        name = str(spelling).removeprefix("torch.")
    return _BY_NAME.get(name.rstrip("_") if name == "bool_" else name)


def _is_pair(item: object) -> TypeGuard[tuple[object, object]]:
    return isinstance(item, tuple)


@dataclass(frozen=True, slots=True)
class LineOf:
    """`Line[dtype]` without a width, of a dtype or TypeVar: it stands for lines of any width."""

    element: Any

    def __repr__(self) -> str:
        return f"line<{self.element}>"

    def __call__(self, value: Any) -> Any:
        raise TypeError("how many lanes? write cp.Line[dtype, width](value)")


class _LineMeta(type):
    @overload
    def __getitem__(cls, item: tuple[object, object]) -> Line: ...
    @overload
    def __getitem__(cls, item: DType | TypeVar) -> LineOf: ...
    def __getitem__(cls, item: object) -> Line | LineOf:
        if not _is_pair(item) and (isinstance(item, TypeVar) or find_dtype(item) is not None):
            return LineOf(item if isinstance(item, TypeVar) else find_dtype(item))
        element, width = item if _is_pair(item) else (item, None)
        dtype = find_dtype(element)
        if not isinstance(width, int) and isinstance(width, SupportsIndex):
            width = index_of(width)
        if dtype is None or not isinstance(width, int) or width < 1:
            raise TypeError(f"Line[dtype, width] needs a dtype and a positive width, not {item!r}")
        return make_line(dtype, width)


@dataclass(frozen=True, slots=True)
class Line(metaclass=_LineMeta):
    """A SIMD vector of `width` lanes of `element`; users write `cp.Line[cp.f32, 8]`.

    Kernels call it with one number for all lanes, a line to convert, or a number for each lane.
    """

    element: DType
    width: int

    def __repr__(self) -> str:
        return f"line<{self.element.name}, {self.width}>"

    def __call__(self, *values: Any) -> Any:
        raise TypeError("a Line exists inside kernels only")


@cache
def make_line(element: DType, width: int) -> Line:
    """The one `Line` object of this element and width, for all threads."""
    return _lines.setdefault((element, width), Line(element, width))


_lines: dict[tuple[DType, int], Line] = {}


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that holds elements of one type, addressed by an element offset."""

    element: DType
    space: Space = Space.GLOBAL

    def __repr__(self) -> str:
        return f"buffer<{self.element.name}, {self.space.value}>"


@dataclass(frozen=True, slots=True)
class Ref:
    """A mutable local of a kernel before SSA construction."""

    of: Value_

    def __repr__(self) -> str:
        return f"ref<{self.of!r}>"


Value_: TypeAlias = DType | Line
Type: TypeAlias = DType | Line | Buffer | Ref


def element_of(t: Type) -> DType:
    """The scalar type of a scalar, line or buffer."""
    if isinstance(t, DType):
        return t
    if isinstance(t, Ref):
        return element_of(t.of)
    return t.element


def width_of(t: Type) -> int:
    """Lanes of a line; 1 for everything else."""
    return t.width if isinstance(t, Line) else 1


def with_element(t: Type, element: DType) -> DType | Line:
    """`t` with another scalar type and the same number of lanes."""
    return make_line(element, t.width) if isinstance(t, Line) else element


_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}


def unsigned_like(t: Type) -> DType | Line:
    """`t` with unsigned integers of the same size."""
    return with_element(t, _UNSIGNED[element_of(t).bits])
