"""Attention as plain data: extents, types, and how the work is divided."""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir.types import DType
from cubepy.record import dataclass

LINE_BYTES = 16
"""Bytes of a line in shared memory."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`heads` times `queries` rows of `size` elements against `keys` rows of `size` elements, and
    values of `width` elements; computed in `dtype`. A query of `is_causal` attention sees no keys
    behind its own position; `has_window`: what it sees begins or ends at other distances from it.
    `elements`: the type in memory, where tensor maps can describe the arrays; `factors`: the same,
    where rows are dense; `result`: that of results, None if it is the same."""

    heads: int
    queries: int
    keys: int
    size: int
    width: int
    dtype: DType
    is_causal: bool
    elements: DType | None = None
    has_window: bool = False
    result: DType | None = None
    factors: DType | None = None


@dataclass(frozen=True, slots=True)
class Strips:
    """How a CPU divides attention.

    Products have `rows` queries by `lines` lines of `line` keys, or elements of values, in
    registers. A cube has `height` queries; it takes `keys` keys at a time, whose packed form and
    the values beside them stay in a near cache. `size`, `width`: elements of a query, of a value.
    """

    rows: int
    lines: int
    line: int
    height: int
    keys: int
    size: int
    width: int
    dtype: DType
    is_causal: bool

    @property
    def step(self) -> int:
        """Keys, or elements of values, of a product in registers."""
        return self.lines * self.line

    @property
    def pitch(self) -> int:
        """The size in whole lines."""
        return -(-self.size // self.line) * self.line

    @property
    def tiles(self) -> int:
        """Products side by side that make all elements of the values."""
        return -(-self.width // self.step)


@dataclass(frozen=True, slots=True)
class Few(Strips):
    """How a CPU divides attention of few queries, of which nothing is packed: the scores of
    `together` keys, in lines along their elements, are in registers at a time."""

    together: int = 1


@dataclass(frozen=True, slots=True)
class UnitStrips:
    """How a CPU with matrix units divides attention of `factors`, computed in `dtype`.

    A cube has `height` queries, and takes `keys` keys at a time. `deep`: lines of a query; `wide`:
    panels of a value.
    """

    height: int
    keys: int
    deep: int
    wide: int
    factors: DType
    dtype: DType
    is_causal: bool

    @property
    def line(self) -> int:
        """Elements of k of a block."""
        return 64 // self.factors.itemsize

    @property
    def word(self) -> int:
        """Elements in 32 bits."""
        return 4 // self.factors.itemsize

    @property
    def rows(self) -> int:
        """Queries that are multiplied at once."""
        return 32

    @property
    def left(self) -> str:
        """The axis along which queries are dense."""
        return "rows"

    @property
    def moved(self) -> bool:
        """Whether queries are packed as unsigned bytes."""
        return False


@dataclass(frozen=True, slots=True)
class Squares:
    """How a GPU divides attention.

    A cube of `side` by `side` units has `side * rows` queries and takes `side * columns` keys at a
    time; each unit has `rows` by `columns` scores, and `rows` by `wide` elements of the result in
    registers, both in whole lines. `depth` elements of queries and keys are in shared memory at a
    time.
    """

    side: int
    rows: int
    columns: int
    wide: int
    depth: int
    dtype: DType
    is_causal: bool

    @property
    def line(self) -> int:
        """Elements that units read from shared memory at a time."""
        return LINE_BYTES // self.dtype.itemsize

    @property
    def height(self) -> int:
        """Queries of a cube."""
        return self.side * self.rows

    @property
    def keys(self) -> int:
        """Keys of a step."""
        return self.side * self.columns

    @property
    def width(self) -> int:
        """Elements of values of a cube."""
        return self.side * self.wide

    @property
    def pitch(self) -> int:
        """Elements of a row of queries or keys in shared memory."""
        return max(self.height, self.keys) + self.line

    @property
    def held(self) -> int:
        """Elements of queries and keys in shared memory, and then of values."""
        return 2 * self.depth * self.pitch

    @property
    def deep(self) -> int:
        """Rows of values in shared memory at a time."""
        return min(self.keys, 1 << (self.held // self.width).bit_length() - 1)


@dataclass(frozen=True, slots=True)
class GradientSquares:
    """How any device divides gradients of attention.

    A cube of `side` by `side` units sums the gradients of `side * rows` rows, of keys and values
    if it `is_of_keys`, else of queries, and takes `side * columns` of the others at a time; each
    unit has `rows` by `columns` scores, and `rows` by `wide` elements of each gradient in
    registers. `depth` elements of rows, or rows of a step, are in shared memory at a time.
    """

    side: int
    rows: int
    columns: int
    wide: int
    depth: int
    dtype: DType
    is_causal: bool
    is_of_keys: bool

    @property
    def height(self) -> int:
        """Rows of a cube."""
        return self.side * self.rows

    @property
    def step(self) -> int:
        """Rows of a step."""
        return self.side * self.columns

    @property
    def width(self) -> int:
        """Elements of gradients of a cube."""
        return self.side * self.wide


CLUSTER = 8
"""Cubes of a cluster that make a tile."""


@dataclass(frozen=True, slots=True)
class GradientStrips:
    """How a CPU divides gradients of attention.

    Products have `rows` rows by `lines` lines of `line` elements in registers. Blocks of weights
    are `queries`, a multiple of `rows`, by `keys`, a multiple of a product's columns. `size`,
    `width`: elements of a query, of a value, in whole products.
    """

    rows: int
    lines: int
    line: int
    queries: int
    keys: int
    size: int
    width: int
    dtype: DType
    is_causal: bool

    @property
    def step(self) -> int:
        """Columns of a product in registers."""
        return self.lines * self.line

    @property
    def row(self) -> int:
        """The length of a row of weights, of which whole products are read."""
        return self.keys + -(-self.rows // self.line) * self.line


@dataclass(frozen=True, slots=True)
class Warpgroups:
    """How Hopper divides attention.

    `consumers` warpgroups have 64 queries each, and take `keys` keys at a time, of which `stages`
    steps are under way. `size`, `width`: elements of a query, multiples of 16, and of a value.
    `tiles`: queries of so many tiles have memory.
    `shares_memory`: results leave through that of the queries, of one tile. `dtype`: of queries,
    keys and values; `result`: of results. `is_split`: some tiles are made by several cubes, as an
    `Order` says; `is_clustered`: each by those of a cluster, which join what they have.
    """

    consumers: int
    keys: int
    stages: int
    size: int
    width: int
    tiles: int
    shares_memory: bool
    dtype: DType
    result: DType
    is_causal: bool
    is_split: bool = False
    is_clustered: bool = False

    @property
    def height(self) -> int:
        """Queries of a tile."""
        return 64 * self.consumers

    @property
    def piece(self) -> int:
        """Elements of a row of shared memory, which has 128 bytes."""
        return 128 // self.dtype.itemsize

    @property
    def depth(self) -> int:
        """Elements of a row that a product takes."""
        return 32 // self.dtype.itemsize

    @property
    def pieces(self) -> int:
        """Rows of shared memory that a query fills."""
        return -(-self.size // self.piece)

    @property
    def wide_pieces(self) -> int:
        """Rows of shared memory that a value fills."""
        return -(-self.width // self.piece)

    @property
    def result_pieces(self) -> int:
        """Rows of shared memory that a result fills before it leaves; f32 leaves from registers."""
        return 0 if self.result.bits == 32 else -(-self.width // 64)

    @property
    def turns_values(self) -> bool:
        """Whether values are transposed in shared memory, as products of bytes want them."""
        return self.dtype.bits == 8

    @property
    def turned_rows(self) -> int:
        """Elements of values that are transposed; 32 at a time."""
        return -(-self.width // 32) * 32 if self.turns_values else 0

    @property
    def turned_pieces(self) -> int:
        """Rows of shared memory that an element of the values of a step fills."""
        return -(-self.keys // 128)

    @property
    def shift(self) -> int:
        """The exponent of what weights are multiplied by, so that f8e4m3 rounds few to zero."""
        return 8 if self.dtype.bits == 8 else 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        rows = self.tiles * self.height * self.pieces
        rows += 0 if self.shares_memory else self.height * self.result_pieces
        rows += self.stages * self.keys * (self.pieces + self.wide_pieces)
        rows += self.stages * self.turned_rows * self.turned_pieces
        parts = 4 * self.height * (self.width + 2) if self.is_clustered else 0
        return rows * 128 + parts + 16 * (3 * self.stages + self.tiles) + 1024

    @property
    def registers(self) -> tuple[int, int]:
        """Of a unit that copies, and of one that computes; 0: as many as the compiler takes."""
        if self.turns_values:
            return {1: (0, 0), 2: (40, 232), 3: (56, 152)}[self.consumers]
        return {1: (0, 0), 2: (24, 240), 3: (32, 160)}[self.consumers]


CHUNK = 8
"""Elements of 16 bits that are copied at once."""


class _Padded:
    """Rows of 16-bit elements in shared memory, for products of 16 of them. `size`, `width`: the
    elements of a query and of a value."""

    __slots__ = ()
    size: int
    width: int

    @property
    def deep(self) -> int:
        """Elements of a query in whole products."""
        return -(-self.size // 16) * 16

    @property
    def wide(self) -> int:
        """Elements of a value in pairs of products."""
        return -(-self.width // 16) * 16

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from row to row of queries and keys in shared memory, and of values: an odd
        number of 16 bytes, so that `ldmatrix` finds eight rows in different banks."""
        return self.deep + CHUNK, self.wide + CHUNK


@dataclass(frozen=True, slots=True)
class Fragments(_Padded):
    """How tensor cores that planes share (`cp.cuda.mma`, sm_80 on) divide attention.

    A cube has `down` planes below each other, each with `rows` blocks of 16 queries, and takes
    `keys` keys at a time, of which `stages` steps are in shared memory; `across` planes divide the
    keys of a step among them, and join what they have at the end. `size`, `width`: elements of a
    query and of a value, multiples of 8. `dtype`: of queries, keys and values. `noted`: the most
    queries of a tile, which planes join results of. `is_split`: some tiles are made by several
    cubes, as an `Order` says.
    """

    down: int
    across: int
    rows: int
    keys: int
    stages: int
    size: int
    width: int
    dtype: DType
    is_causal: bool
    noted: int
    is_split: bool = False

    @property
    def is_clustered(self) -> bool:
        """Clusters are younger than these products."""
        return False

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.down * self.across

    @property
    def height(self) -> int:
        """Queries of a tile."""
        return 16 * self.rows * self.down

    @property
    def of_plane(self) -> Fragments:
        """What one plane has."""
        return replace(self, down=1, across=1, keys=self.keys // self.across)

    @property
    def shift(self) -> int:
        """The exponent of what weights are multiplied by."""
        return 0

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what the kernel of sequences keeps beside."""
        rows = self.height * self.pitches[0] + self.stages * self.keys * sum(self.pitches)
        parts = self.across * self.noted * (self.width + 2) if self.across > 1 else 0
        return rows * self.dtype.itemsize + 4 * parts + CURSOR_BYTES


CURSOR_BYTES = 32
"""Shared memory of `ragged_fragments.agreed`."""
KEYS = 128
"""Keys of a cube that sums gradients on Hopper."""


@dataclass(frozen=True, slots=True)
class GradientWarpgroups:
    """How Hopper divides gradients of attention.

    A cube has `KEYS` keys with their values, and takes `rows` queries at a time, of which `stages`
    steps are under way, and `slope_stages` of the gradients of their results. It sums the gradients
    of keys and queries if it `is_of_keys`, those of values if it `is_of_values`. `size`: elements
    of all rows in shared memory, a multiple of 64. `dtype`: of all arrays.
    """

    rows: int
    stages: int
    slope_stages: int
    size: int
    dtype: DType
    is_causal: bool
    is_of_keys: bool = True
    is_of_values: bool = True

    @property
    def pieces(self) -> int:
        """Parts of 64 elements of a row."""
        return self.size // 64

    @property
    def parts(self) -> int:
        """Products of 64 elements that a warpgroup adds to the gradients of a step's queries: half
        of the pieces, or all of an odd number for half of the queries."""
        return self.pieces if self.pieces % 2 else self.pieces // 2

    @property
    def columns(self) -> int:
        """Queries of each of those."""
        return self.rows // 2 if self.pieces % 2 else self.rows

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        stages = self.stages + self.slope_stages
        rows = self.pieces * (KEYS * (1 + self.is_of_keys) + stages * self.rows)
        rows += 2 * self.rows if self.is_of_keys else 0
        return rows * 128 + 4 * stages * self.rows + 16 * (1 + stages) + 1024


@dataclass(frozen=True, slots=True)
class GradientFragments(_Padded):
    """How tensor cores that planes share (`cp.cuda.mma`, sm_80 on) divide gradients of attention.

    A cube has `planes` planes below each other, each with `rows` blocks of 16 queries if it
    `is_of_queries`, else of keys, and takes `step` of the others at a time, of which `stages` steps
    are in shared memory. It sums the gradients of queries; those of keys if it `is_of_keys`, those
    of values if it `is_of_values`. `size`, `width`: elements of a query and of a value, multiples
    of 8. `dtype`: of all arrays.
    """

    planes: int
    rows: int
    step: int
    stages: int
    size: int
    width: int
    dtype: DType
    is_causal: bool
    is_of_queries: bool
    is_of_keys: bool = False
    is_of_values: bool = False

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.planes

    @property
    def height(self) -> int:
        """Rows of a cube."""
        return 16 * self.rows * self.planes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        rows = self.height + self.stages * self.step
        return rows * sum(self.pitches) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Order:
    """How tiles are dealt out to cubes, where each has `steps` of keys.

    Cubes make tiles by turns, of which `together` causal heads are done before the next. Or
    `sharers` cubes, more than there are tiles, make shares of all their steps in a row, each as
    many as another or one more; 0: none do.
    """

    together: int
    tiles: int
    steps: int
    sharers: int = 0

    @property
    def cubes(self) -> int:
        """How many can be busy."""
        return self.sharers or self.tiles

    @property
    def share(self) -> tuple[int, int]:
        """The steps of a sharer, and how many of them, the first, have one more."""
        return divmod(self.tiles * self.steps, self.sharers) if self.sharers else (0, 0)

    def maker(self, step: int) -> int:
        """The sharer that makes a step; as `tiles.maker`."""
        least, more = self.share
        long = more * (least + 1)
        return step // (least + 1) if step < long else more + (step - long) // least

    @property
    def parts(self) -> int:
        """The most sharers that make a tile."""
        firsts = range(0, self.tiles * self.steps, self.steps)
        return max(self.maker(n + self.steps - 1) - self.maker(n) + 1 for n in firsts)

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """As kernels take it."""
        return self.together, self.tiles, self.steps, *self.share


@dataclass(frozen=True, slots=True)
class Sequences:
    """How sequences lie in tiles.

    `group` neighbouring heads of queries share keys, of which `packed` are rows of one tile.
    `page`: keys of a page, 0 where they follow each other.
    """

    group: int
    packed: int
    page: int


Configuration = Strips | UnitStrips | Squares | Fragments | Warpgroups
