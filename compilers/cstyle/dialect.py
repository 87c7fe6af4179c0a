"""A dialect of C as data: the writer takes every name, type and spelling from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from cubepy.compilers.cstyle.spelling import Spelling
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DTYPES, DType, Kind, Space
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.record import dataclass

Key = tuple[OpDef, DType | Kind | None]
"""An operation on one scalar type, on a kind of types, or (None) on all."""
Spellings = dict[Key, Spelling]
SMALL_TABLE = 1024
"""Bytes of a constant table of which all units mostly read one entry, as of the weights of a
filter; units look into larger ones by data."""
_AS_IT_IS = Spelling("{0}")


@dataclass(frozen=True, slots=True)
class Helper:
    """A function or type of the prelude; it comes behind the helpers that its text mentions."""

    text: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation as inline assembly: `text` gives its template.

    `%0`, `%1`, ... are registers: of the result, of the operands in order, each line with one for
    each lane; an address has one. `is_update`: the first operand's registers become the result's;
    `discards` says of an operation that they are not read before.
    `alignments`: by position, what a shared array that is an operand is aligned to, in bytes.
    """

    text: Callable[[Op], str]
    is_update: bool = False
    discards: Callable[[Op], bool] | None = None
    alignments: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect, for one target.

    `can`: what the target can do, which legalisation reads; `complete` adds what spellings imply.

    Types: `scalars` (absent: no such type), `suffixes` of integer
    literals, `vectors` (native lines), their `lanes`, and how they are made (`vector_build`,
    `vector_splat`, `struct_build`; `struct` declares a line that is not native).

    Functions: `function` stands before helpers; `overloads` says for which lines operators may be
    defined (all, structs, or none); `vector_rows` are operators that native lines have.

    Kernels: `head`, `buffer`, `number` and `fault` (parameters; `extra_params` where their
    names occur), `spaces` (qualifiers of pointers),
    `declarations` of memory (`dynamic_shared` beyond `static_shared_bytes`), `table` (a constant
    array in the prelude; `large_table` beyond `SMALL_TABLE` bytes), and `positions`, which
    an index beside them converts where they have 32 bits (`bare_positions`).

    `bitcast` and `line_bitcast` keep the bits of scalars and of native lines (`{t}`: the type).

    `pragmas`: lines that the prelude needs where a word occurs. `vector_calls`: functions that take
    native lines too.

    `vector_load` and `vector_store` move native lines from and to any address.

    `instructions`: operations that are inline assembly; `registers` are the constraints of its
    operands (of an address by its space), `address` makes one of a pointer into shared memory.

    `calls`: operations that are a call of a helper with their operands as they are (`{t}`: the
    scalar type of the first).

    `end_of_body`: what stands at the end of loops and branches with barriers.

    `tensor_map` declares such a parameter; `cluster` the cubes that run together. `head_of_planes`
    fixes the size of planes in the head. `simds`: parts of a multiprocessor, where the head bounds
    the planes of each instead of the cubes of all. `begin`: the first statement of each kernel, if
    any.

    `print_most`: values that a call of printf takes; 0 for any number.
    """

    can: Capabilities
    scalars: Mapping[DType, str]
    suffixes: Mapping[DType, str]
    float_suffixes: Mapping[DType, str]
    from_bits: Mapping[DType, str]
    vectors: Mapping[tuple[DType, int], str]
    lanes: tuple[str, ...]
    vector_build: str
    vector_splat: Spelling | None
    splat_helper: str = ""
    struct: str
    struct_build: str
    function: str
    overloads: str
    vector_rows: Mapping[Kind, frozenset[OpDef]] = field(
        default_factory=dict[Kind, frozenset[OpDef]]
    )
    vector_calls: frozenset[OpDef] = frozenset()
    head: str
    buffer: str
    number: str
    fault: str
    restrict: str
    param_types: Mapping[DType, str] = field(default_factory=dict[DType, str])
    arguments_struct: str = ""
    extra_params: Mapping[str, str] = field(default_factory=dict[str, str])
    spaces: Mapping[Space, str]
    declarations: Mapping[Space, str]
    table: str
    large_table: str = ""
    begin: str = ""
    dynamic_block: str = ""
    dynamic_shared: str = ""
    static_shared_bytes: int = 0
    positions: Mapping[tuple[OpDef, str], str]
    bare_positions: bool = False
    head_of_planes: str = ""
    simds: int = 0
    prelude: tuple[str, ...] = ()
    instructions: Mapping[OpDef, Instruction] = field(default_factory=dict[OpDef, Instruction])
    registers: Mapping[DType | Space, str] = field(default_factory=dict[DType | Space, str])
    address: str = ""
    calls: Mapping[OpDef, str] = field(default_factory=dict[OpDef, str])
    tensor_map: str = ""
    cluster: str = ""
    pragmas: Mapping[str, str] = field(default_factory=dict[str, str])
    spellings: Spellings
    conversions: Mapping[tuple[OpDef, DType, DType], Spelling] = field(
        default_factory=dict[tuple[OpDef, DType, DType], Spelling]
    )
    bitcast: Spelling | None = None
    line_bitcast: Spelling | None = None
    helpers: dict[str, Helper] = field(default_factory=dict[str, Helper])
    vector_load: Spelling | None = None
    vector_store: Spelling | None = None
    stream_load: Spelling | None = None
    stream_store: Spelling | None = None
    unroll: str = "#pragma unroll"
    end_of_body: str = ""
    print_words: Mapping[str, str]
    print_float: Spelling = _AS_IT_IS
    print_most: int = 0
    prints_strings: bool = True
    reserved: frozenset[str]

    def spelling(self, row: OpDef, dtype: DType | None) -> Spelling | None:
        """The spelling for a scalar type, else for its kind, else for all."""
        if dtype is not None:
            found = self.spellings.get((row, dtype)) or self.spellings.get((row, dtype.kind))
            if found is not None:
                return found
        return self.spellings.get((row, None))


_OPEN_CASES = frozenset(
    (
        *(ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC),
        *(ops.SHL, ops.SHR, ops.CAST),
    )
)
"""Operations whose operators in C leave cases undefined."""
REFUSED = dict.fromkeys(
    (ops.UNITS, ops.PLANES, ops.PLANE_POS), "it is made for CPUs, where loops run the units"
) | dict.fromkeys((ops.VAR, ops.GET, ops.SET), "locals become SSA values before")
"""What no dialect has, with the reasons."""


def complete(dialect: Dialect) -> Dialect:
    """The dialect whose capabilities are those of its types and spellings."""
    rows = {row for row, _ in dialect.spellings}
    native = {row: frozenset(t for t in DTYPES if dialect.spelling(row, t)) for row in rows}
    can = replace(
        dialect.can,
        scalars=frozenset(dialect.scalars),
        native=native,
        open_cases=_OPEN_CASES,
    )
    return replace(dialect, can=can)
