"""What a dialect of C is: data. The writer asks it for every name, type and spelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cubepy.compilers.cstyle.spelling import Spelling
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, Space

Key = tuple[OpDef, DType | Kind | None]
"""An operation on one scalar type, on a kind of types, or (None) on all."""
Spellings = dict[Key, Spelling]


@dataclass(frozen=True, slots=True)
class Helper:
    """A function or type of the prelude; it comes behind the helpers that its text mentions."""

    text: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation as inline assembly: `text` gives its template.

    `%0`, `%1`, ... are registers: of the result, of the operands in order, each line with one for
    each lane; an address has one. `is_update`: the first operand's registers become the result's.
    `alignments`: by position, what a shared array that is an operand is aligned to, in bytes.
    """

    text: Callable[[Op], str]
    is_update: bool = False
    alignments: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect, for one target.

    Types: `scalars` (absent: no such type; `reasons` says why), `stored` (only moved; computed in
    f32), `soft` (of these, the ones that are converted on their bits), `suffixes` of integer
    literals, `vectors` (native lines), their `lanes`, and how they are made (`vector_build`,
    `vector_splat`, `struct_build`; `struct` declares a line that is not native).

    Functions: `function` stands before helpers; `overloads` says for which lines operators may be
    defined (all, structs, or none); `vector_rows` are operators that native lines have.

    Kernels: `head`, `buffer`, `number` and `fault` (parameters; `extra_params` where their
    names occur), `spaces` (qualifiers of pointers),
    `declarations` of memory (`dynamic_shared` beyond `static_shared_bytes`), `positions`, and the
    cast before them that an index beside them makes needless (`bare_positions`).

    `bitcast` and `line_bitcast` keep the bits of scalars and of native lines (`{t}`: the type).

    `pragmas`: lines that the prelude needs where a word occurs. `vector_calls`: functions that take
    native lines too.

    `vector_load` and `vector_store` move native lines from and to any address.

    `instructions`: operations that are inline assembly; `registers` are the constraints of its
    operands (of an address by its space), `address` makes one of a pointer into shared memory.

    `calls`: operations that are a call of a helper with their operands as they are (`{t}`: the
    scalar type of the first).

    `tensor_map` declares such a parameter; `cluster` the cubes that run together (`no_cluster` says
    why there are none).

    `planes`: what planes are called where they can shuffle. `head_of_planes` fixes their size in
    the head; with `planes_in_rows` they end with a row of units along X; with `shuffles_keep` a
    unit keeps its value where a relative shuffle finds none. `planes_exit`: units that returned do
    not disturb barriers and plane operations.
    """

    name: str
    scalars: Mapping[DType, str]
    reasons: Mapping[DType, str] = field(default_factory=dict[DType, str])
    stored: frozenset[DType] = frozenset()
    soft: frozenset[DType] = frozenset()
    native_fma: frozenset[DType] = frozenset()
    suffixes: Mapping[DType, str]
    float_suffixes: Mapping[DType, str]
    from_bits: Mapping[DType, str]
    vectors: Mapping[tuple[DType, int], str]
    lanes: tuple[str, ...]
    vector_build: str
    vector_splat: str
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
    dynamic_block: str = ""
    dynamic_shared: str = ""
    static_shared_bytes: int = 0
    positions: Mapping[tuple[OpDef, str], str]
    bare_positions: str = ""
    plane_dim: int
    planes_exit: bool
    planes: str = ""
    head_of_planes: str = ""
    planes_in_rows: bool = False
    shuffles_keep: bool = False
    prelude: tuple[str, ...] = ()
    instructions: Mapping[OpDef, Instruction] = field(default_factory=dict[OpDef, Instruction])
    registers: Mapping[DType | Space, str] = field(default_factory=dict[DType | Space, str])
    address: str = ""
    calls: Mapping[OpDef, str] = field(default_factory=dict[OpDef, str])
    tensor_map: str = ""
    cluster: str = ""
    no_cluster: str = ""
    pragmas: Mapping[str, str] = field(default_factory=dict[str, str])
    spellings: Spellings
    conversions: Mapping[tuple[OpDef, DType, DType], Spelling] = field(
        default_factory=dict[tuple[OpDef, DType, DType], Spelling]
    )
    bitcast: Spelling | None = None
    line_bitcast: Spelling | None = None
    helpers: dict[str, Helper] = field(default_factory=dict[str, Helper])
    vector_load: str = ""
    vector_store: str = ""
    stream_store: str = ""
    unroll: str = "#pragma unroll"
    print_words: Mapping[str, str]
    prints_strings: bool = True
    reserved: frozenset[str]
    refused: Mapping[OpDef, str] = field(default_factory=dict[OpDef, str])

    def spelling(self, row: OpDef, dtype: DType | None) -> Spelling | None:
        """The spelling for a scalar type, else for its kind, else for all."""
        if dtype is not None:
            found = self.spellings.get((row, dtype)) or self.spellings.get((row, dtype.kind))
            if found is not None:
                return found
        return self.spellings.get((row, None))
