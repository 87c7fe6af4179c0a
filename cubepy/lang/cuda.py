"""`cp.cuda`: instructions of NVIDIA's GPUs, each one operation of the IR.

Names follow the PTX ISA, which says what they mean to the last bit. Other targets, and
architectures without an instruction, refuse the kernel. `index` is as in `x[index]`; `shared`
arguments are made by `cp.shared`, barriers by `cp.shared(n, cp.u64)`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

from cubepy.errors import Error, fail
from cubepy.ir.types import DType, find_dtype, u64
from cubepy.lang.annotations import Spec, spec
from cubepy.record import dataclass

F = TypeVar("F", bound=Callable[..., Any])
NAMES: dict[str, Any] = {}


def _instruction(function: F) -> F:
    NAMES[function.__name__] = function
    function.__cubepy_builtin__ = f"cuda.{function.__name__}"  # type: ignore[attr-defined]
    return function


def _only_inside(name: str) -> Any:
    raise Error(f"cp.cuda.{name} works inside kernels only")


# Any architecture


@_instruction
def ptx(template: str, *operands: Any, result: Any = None, update: Any = None) -> Any:
    """Inline PTX. `result` is the dtype or line of what it gives, if anything; instead, a number or
    line `update` is read and written in the registers of the result.

    `%0`, `%1`, ... are registers: those of the result, then those of the operands; a line has one
    for each lane. `%%` is a percent sign, as in `%%laneid`. Values have 16, 32 or 64 bits; numbers
    without a type are i32 and f32. It is never moved, repeated or left out.
    """
    return _only_inside("ptx")


@_instruction
def address(x: Any, index: Any) -> Any:
    """The address of `x[index]`: a u32 within shared memory, else a generic u64."""
    return _only_inside("address")


# Matrices of a plane and asynchronous copies: sm_80


@_instruction
def async_copy(
    shared: Any, index: Any, x: Any, x_index: Any, elements: int, present: Any = None
) -> None:
    """Copy `elements` (4, 8 or 16 bytes, aligned to that) from `x[x_index]` on to `shared[index]`.

    Elements are consecutive along the last axis of both. Where `present`, a bool, is false nothing
    is read, so that `x_index` may lie outside, and the elements of `shared` become 0. See
    `async_commit`, `async_wait`. sm_80.
    """
    _only_inside("async_copy")


@_instruction
def async_commit() -> None:
    """Make a group of this unit's copies since the last one. sm_80."""
    _only_inside("async_commit")


@_instruction
def async_wait(count: int = 0) -> None:
    """Wait until at most `count` of this unit's last groups of copies are under way. sm_80.

    Other units see the data after `cp.sync_cube()`.
    """
    _only_inside("async_wait")


@_instruction
def ldmatrix(shared: Any, index: Any, count: int = 4, transposed: bool = False) -> Any:
    """`count` (1, 2, 4) matrices of 8x8 elements of 2 bytes, as a `cp.Line[cp.u32, count]`.

    Lanes 8k to 8k+7 of the plane give where the rows of matrix k begin, at multiples of 16 bytes.
    Lane l gets the elements 2(l%4), 2(l%4)+1 of row l//4 of matrix k in word k; of column l//4 if
    `transposed`. Elements may also have 1 byte, of which pairs stand for one of 2, and unless
    `transposed` 4: rows have 16 bytes, words 4. sm_75.
    """
    return _only_inside("ldmatrix")


@_instruction
def stmatrix(shared: Any, index: Any, value: Any, transposed: bool = False) -> None:
    """Store matrices that are laid out in the plane as `ldmatrix` gives them. sm_90."""
    _only_inside("stmatrix")


@_instruction
def mma(a: Any, b: Any, c: Any, elements: Any) -> Any:
    """a @ b + c by the tensor cores, over the plane: a is 16 x k, b is k x 8, c is 16 x 8.

    `elements` is cp.f16, cp.bf16, "tf32", cp.i8 or cp.u8. a and b are `cp.Line`s of u32 words that
    pack them: 4 and 2 words (k = 16; tf32: 8; 8 bits: 32) or 2 and 1 (half of that). c and the
    result are 4 lanes of f32 (of i32 for integers). Which unit holds what is in the PTX ISA,
    "Matrix Fragments for mma". sm_80.

    With cp.f64 all are lines of f64: of a and b 2 and 1 numbers (k = 4), 4 and 2 (k = 8) or 8 and 4
    (k = 16), of c 4 (sm_90); or a and b are numbers and c has 2 lanes: then a is 8 x 4, b is 4 x 8
    and c is 8 x 8 (sm_80). Products and sums are rounded as `cp.fma` does, in an order of the
    hardware's own.
    """
    return _only_inside("mma")


# Barriers and bulk copies: sm_90


@_instruction
def barrier_init(barrier: Any, index: Any, count: Any) -> None:
    """Initialise a barrier whose phases end after `count` arrivals; by one unit. sm_90.

    `fence_barriers` and `cp.sync_cube()` make it known before it is used.
    """
    _only_inside("barrier_init")


@_instruction
def fence_barriers() -> None:
    """Let the cluster and the copy engine see initialised barriers. sm_90."""
    _only_inside("fence_barriers")


@_instruction
def barrier_arrive(barrier: Any, index: Any) -> None:
    """Arrive once. sm_90."""
    _only_inside("barrier_arrive")


@_instruction
def barrier_expect(barrier: Any, index: Any, nbytes: Any) -> None:
    """Arrive once, and let the phase wait for `nbytes` (below 2**20) of bulk copies too. sm_90."""
    _only_inside("barrier_expect")


@_instruction
def barrier_try_wait(barrier: Any, index: Any, parity: Any) -> Any:
    """Whether the phase of `parity` (0 for the first, then 1, 0, ...) has ended. sm_90."""
    return _only_inside("barrier_try_wait")


def barrier_wait(barrier: Any, index: Any, parity: Any) -> None:
    """Wait until the phase of `parity` (0 for the first, then 1, 0, ...) has ended. sm_90."""
    while not barrier_try_wait(barrier, index, parity):
        pass


@_instruction
def fence_async() -> None:
    """Let bulk copies and `wgmma` see this unit's stores to shared memory. sm_90.

    Each unit that stored calls it before the barrier that all units reach.
    """
    _only_inside("fence_async")


@_instruction
def bulk_load(
    shared: Any,
    index: Any,
    x: Any,
    x_index: Any,
    elements: Any,
    barrier: Any,
    barrier_index: Any,
    hint: Any = None,
) -> None:
    """Copy elements (a multiple of 16 bytes, aligned to 16) to shared memory; by one unit.

    The bytes arrive at the barrier, see `barrier_expect`. `hint` is as in `tensor_load`. sm_90.
    """
    _only_inside("bulk_load")


@_instruction
def bulk_store(
    x: Any, x_index: Any, shared: Any, index: Any, elements: Any, hint: Any = None
) -> None:
    """Copy elements from shared memory; `bulk_commit` and `bulk_wait` say when that is over.

    A multiple of 16 bytes, aligned to 16; by one unit. `hint` is as in `tensor_load`. sm_90.
    """
    _only_inside("bulk_store")


@_instruction
def tensor_load(
    shared: Any,
    index: Any,
    tensor: Any,
    origin: Any,
    barrier: Any,
    barrier_index: Any,
    multicast: Any = None,
    offsets: Any = None,
    hint: Any = None,
) -> None:
    """Copy the box of a `TensorMap` that begins at `origin` to shared memory; by one unit.

    What lies outside of the array is 0. Along the last axis a box begins at a multiple of 16 bytes:
    an H200 stops at others with an illegal instruction. All bytes of the box (`tensor.nbytes`)
    arrive at the barrier. `shared[index]` is aligned to 128 bytes, with a swizzle to 8 times as
    many as it has; the array itself is. With `multicast`, a mask of ranks of the cluster, the box
    goes to the same place of those cubes, and arrives at the same barrier of each. `hint` is
    "evict_first" for what is read once, "evict_last" for what the L2 cache should keep.

    A map of `tensor_map_im2col` also takes `offsets`, one for each axis between the first and the
    last: how far from the pixels those lie that are copied, at least 0 and below 65536, 256 and 32
    for one, two and three axes. `origin` is the first pixel, (n, row, column, channel) of four
    axes; the others follow it along columns, then rows, then n, each within the corners and by the
    strides of the map. sm_90.
    """
    _only_inside("tensor_load")


@_instruction
def tensor_store(tensor: Any, origin: Any, shared: Any, index: Any, hint: Any = None) -> None:
    """Copy a box from shared memory to `origin` of a `TensorMap`'s array; by one unit.

    What lies outside of the array is dropped. `bulk_commit` and `bulk_wait` say when it is over.
    `hint` is as in `tensor_load`. sm_90.
    """
    _only_inside("tensor_store")


@_instruction
def tensor_reduce(
    tensor: Any, origin: Any, shared: Any, index: Any, operation: str = "add", hint: Any = None
) -> None:
    """As `tensor_store`, but each element there becomes `operation` of itself and the box's.

    "add" of f16, bf16, f32, i32, u32, u64; "min" and "max" of f16, bf16 and integers of 32 and 64
    bits; "and", "or", "xor" of these integers. Cubes may do so at once; sums of floats then depend
    on the order. sm_90.
    """
    _only_inside("tensor_reduce")


@_instruction
def bulk_commit() -> None:
    """Make a group of this unit's bulk stores since the last one. sm_90."""
    _only_inside("bulk_commit")


@_instruction
def bulk_wait(count: int = 0, read: bool = False) -> None:
    """Wait until at most `count` of this unit's last bulk groups are under way. sm_90.

    With `read`, until the others have read shared memory, which may then be written again.
    """
    _only_inside("bulk_wait")


# Clusters: sm_90


@_instruction
def cluster_rank() -> Any:
    """The position of the cube in its cluster; see `kernel.configure(cluster=...)`. sm_90."""
    return _only_inside("cluster_rank")


@_instruction
def cluster_sync() -> None:
    """All units of the cluster arrive before any goes on. sm_90.

    A cube whose shared memory others access must not end before they are done.
    """
    _only_inside("cluster_sync")


@_instruction
def cluster_load(shared: Any, index: Any, rank: Any) -> Any:
    """`shared[index]` of the cube of that rank. sm_90."""
    return _only_inside("cluster_load")


@_instruction
def cluster_store(shared: Any, index: Any, rank: Any, value: Any) -> None:
    """`shared[index] = value` in the cube of that rank. sm_90."""
    _only_inside("cluster_store")


@_instruction
def cluster_arrive(barrier: Any, index: Any, rank: Any, fence: bool = True) -> None:
    """Arrive once at the barrier `barrier[index]` of the cube of that rank. sm_90.

    Without `fence`, that cube need not see this unit's stores before the arrival, which costs far
    less: enough where the unit only reports that it has read something.
    """
    _only_inside("cluster_arrive")


# Warpgroups, four planes that begin at a multiple of four: sm_90a


@_instruction
def increase_registers(count: int) -> None:
    """setmaxnreg: wait until this unit may have `count` registers (24 to 256 by 8). sm_90a."""
    _only_inside("increase_registers")


@_instruction
def decrease_registers(count: int) -> None:
    """setmaxnreg: give up all but `count` registers of this unit (24 to 256 by 8). sm_90a."""
    _only_inside("decrease_registers")


@_instruction
def wgmma_fence() -> None:
    """Order accesses to registers and shared memory before the products behind it. sm_90a."""
    _only_inside("wgmma_fence")


@_instruction
def wgmma(
    sums: Any,
    a: Any,
    b: Any,
    elements: Any,
    a_transposed: bool = False,
    b_transposed: bool = False,
    accumulate: Any = True,
) -> Any:
    """sums + a @ b of a 64 x k and a k x n tile, over the warpgroup; n is at most 256. sm_90a.

    `elements` is cp.f16 or cp.bf16 (k is 16), "tf32" (k is 8), cp.f8e4m3, cp.f8e5m2, cp.i8 or cp.u8
    (k is 32), or a pair of two of 8 bits for a and b. `sums` is a `cp.Line[cp.f32, n // 2]`, of
    cp.i32 for integers; for f16 and f8 also a `cp.Line[cp.u32, n // 4]` of pairs of f16. Unless
    `accumulate`, which may be known at run time alone, the result is a @ b. f8 products are summed
    with fewer bits than f32 has.

    b is a descriptor, see `wgmma_descriptor`; a is one too, or a `cp.Line[cp.u32, 4]` of what unit
    t holds: word i has the 4 bytes of row 16(t//32) + t%32//4 + 8(i%2) from byte 4(t%4) + 16(i//2)
    on. In shared memory both are K-major unless transposed, which only f16 and bf16 may be. The
    result is there after `wgmma_wait`, and until then what was given must not change. Element i of
    unit t (of u32, half i%2 of word i//2) is that of row 16(t//32) + t%32//4 + 8(i//2%2) and column
    8(i//4) + 2(t%4) + i%2.
    """
    return _only_inside("wgmma")


@_instruction
def wgmma_commit() -> None:
    """Make a group of the products since the last one. sm_90a."""
    _only_inside("wgmma_commit")


@_instruction
def wgmma_wait(sums: Any, count: int = 0) -> Any:
    """The sums, once at most `count` of the last groups of products are under way. sm_90a.

    For sums of several products under way it is called once for each.
    """
    return _only_inside("wgmma_wait")


SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""How descriptors of `wgmma` encode the swizzle of so many bytes."""


def wgmma_descriptor(shared: Any, index: Any, leading: Any, stride: Any, swizzle: int = 0) -> Any:
    """The descriptor of a tile that begins at `shared[index]`. sm_90a.

    Without a swizzle a K-major tile is made of blocks of 8 rows x 16 bytes, each contiguous:
    `leading` is the distance in bytes of blocks that are neighbours along K, `stride` of those
    along the other axis. With a `swizzle` of 32, 64 or 128 bytes, as in a `TensorMap`, rows of that
    many bytes follow each other, `stride` is the distance of 8 rows, and `leading` is not used. A
    transposed tile has rows along the other axis: `stride` is the distance of 8 of them, and
    `leading`, with a swizzle, that of the pieces of so many bytes which a row consists of.
    """
    place = u64(address(shared, index)) & 0x3FFFF
    steps = (u64(leading) & 0x3FFFF) >> 4 << 16 | (u64(stride) & 0x3FFFF) >> 4 << 32
    return place >> 4 | steps | u64(SWIZZLES[swizzle]) << 62


# Tensor maps


@dataclass(frozen=True, slots=True)
class Pixels:
    """Where the pixels of a map in im2col mode begin and end on each axis, and their distance."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """Describes to the copy engine where the elements of an array lie, and the `box` it copies.

    The annotation of a kernel's parameter, and what `tensor_map`, `tensor_map_ragged` and
    `tensor_map_im2col` make. `array` may be a `Spec` where no kernel is launched. Kernels read
    `box`, `dtype` and `nbytes` of it.
    """

    array: Any
    box: tuple[int, ...]
    swizzle: int = 0
    pixels: Pixels | None = None

    @property
    def is_ragged(self) -> bool:
        """Whether `tensor_map_ragged` made it."""
        shape: Any = self.array.shape
        return self.pixels is None and len(self.box) == len(shape) + 2

    @property
    def axes(self) -> int:
        """The axes of the array in im2col mode, else 0."""
        return 0 if self.pixels is None else 2 + len(self.pixels.strides)

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        found = find_dtype(self.array.dtype)
        assert found is not None
        return found

    @property
    def nbytes(self) -> int:
        """The size of a box in shared memory."""
        return prod(self.box) * self.dtype.itemsize


def tensor_map(array: Any, box: tuple[int, ...], swizzle: int = 0) -> TensorMap:
    """A `TensorMap` of an array on a CUDA device, as an argument of kernels. sm_90.

    `box` has an extent of 1 to 256 for each of the 1 to 5 axes; its rows have a multiple of 16
    bytes. `swizzle` (0, 32, 64 or 128 bytes, which its rows must fit) says how 16-byte pieces of
    rows are exchanged in shared memory, so that columns lie in different banks. The array's last
    axis is contiguous; its address and other strides are multiples of 16 bytes. `LaunchError` E421
    for anything else.
    """
    held = spec(array) if isinstance(array, str) else array
    extents = tuple(box)
    reason = _refusal(held, extents, swizzle)
    if reason:
        raise fail("E421", reason=reason, suggestion="")
    return TensorMap(held, extents, swizzle)


def _refusal(array: Any, box: tuple[int, ...], swizzle: Any) -> str:
    """Why there is no tensor map of such a box; empty where there is."""
    shape = array.shape if isinstance(array, Spec) else getattr(array, "shape", None)
    if shape is None:
        return f"it is made of an array, not of a {type(array).__name__}"
    if find_dtype(array.dtype) is None:
        return f"an array of {array.dtype}, which no kernel takes"
    if not 1 <= len(box) <= 5 or len(box) != len(shape):
        return f"a box of {len(box)} axes for an array of {len(shape)}; both have 1 to 5"
    if not all(type(n) is int and 1 <= n <= 256 for n in box):
        return f"the box is {box}; its extents are integers from 1 to 256"
    return "" if swizzle in SWIZZLES else f"a swizzle of {swizzle!r}; it is 0, 32, 64 or 128 bytes"


FAR_ROWS = 1 << 30
"""The rows of a ragged map, the last of which is the last of any count of rows."""


def tensor_map_ragged(array: Any, box: tuple[int, ...], swizzle: int = 0) -> TensorMap:
    """A `TensorMap` whose boxes end where a count of rows ends that is known at run time. sm_90.

    `array` is [rows, elements] or has one more axis between these, and `box` has an extent for each
    of its axes. Kernels see two more axes of one before them, and give `ragged_rows` as the first
    three coordinates of an origin. Rows are less than 16 GiB apart and fewer than 2**30. All else
    as in `tensor_map`.

    The map has rows without an end, and an axis whose step takes back what that adds to an address
    of 64 bits (as the "ragged" descriptors of Triton's kernels do).
    """
    held = spec(array) if isinstance(array, str) else array
    extents = tuple(box)
    reason = _refusal(held, extents, swizzle)
    if not reason and len(extents) not in (2, 3):
        reason = f"an array of {len(extents)} axes; a ragged map is made of 2 or 3"
    if reason:
        raise fail("E421", reason=reason, suggestion="")
    return TensorMap(held, (1, 1, *extents), swizzle)


def ragged_rows(begin: Any, count: Any, row: Any = 0) -> tuple[Any, Any, Any]:
    """The first three coordinates of a box of a ragged map: from `row` on of the `count` rows that
    begin at row `begin` of the array. What is read behind them is 0, what is written is dropped."""
    return FAR_ROWS, begin + count, FAR_ROWS - count + row


def tensor_map_im2col(
    array: Any,
    pixels: int,
    channels: int,
    lower: tuple[int, ...],
    upper: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    swizzle: int = 0,
) -> TensorMap:
    """A `TensorMap` that gives `tensor_load` the operands of a convolution as a matrix. sm_90.

    `array` is [n, columns, channels], [n, rows, columns, channels] or [n, depth, rows, columns,
    channels]; a box is `pixels` (1 to 1024) by `channels` (1 to 256). The pixels of an axis of
    extent e are lower, lower + stride, ... up to e - 1 + upper: for a window of k elements,
    dilated by d, that is lower = -padding and upper = padding - (k - 1) * d, and the taps are
    `offsets` of `tensor_load`. Pixels outside of the array are 0. The corners lie within 32768,
    128 and 16 of 0 for one, two and three axes, strides are 1 to 8. All else as in `tensor_map`.
    """
    held = spec(array) if isinstance(array, str) else array
    steps = (1,) * len(lower) if strides is None else tuple(strides)
    seen = Pixels(tuple(lower), tuple(upper), steps)
    reason = _refusal_im2col(held, (pixels, channels), seen, swizzle)
    if reason:
        raise fail("E421", reason=reason, suggestion="")
    return TensorMap(held, (pixels, channels), swizzle, seen)


_CORNERS = {1: 32768, 2: 128, 3: 16}
_MOST_PIXELS, _MOST_CHANNELS, _LARGEST_STRIDE = 1024, 256, 8


def _refusal_im2col(array: Any, box: tuple[int, int], pixels: Pixels, swizzle: Any) -> str:
    """Why there is no such map in im2col mode; empty where there is."""
    reason = _refusal(array, (1,) * (len(pixels.lower) + 2), swizzle)
    if reason:
        return reason
    axes = len(pixels.lower)
    corners = (*pixels.lower, *pixels.upper)
    if axes not in _CORNERS or not axes == len(pixels.upper) == len(pixels.strides):
        return "it has a lower and an upper corner and a stride for each of 1 to 3 axes"
    for number, most in zip(box, (_MOST_PIXELS, _MOST_CHANNELS), strict=True):
        if type(number) is not int or not 1 <= number <= most:
            return f"the box is {box}; it has 1 to 1024 pixels and 1 to 256 channels"
    most = _CORNERS[axes]
    if not all(type(n) is int and -most <= n < most for n in corners):
        return f"the corners are {pixels.lower} and {pixels.upper}, not within {most} of 0"
    if not all(type(n) is int and 1 <= n <= _LARGEST_STRIDE for n in pixels.strides):
        return f"the strides are {pixels.strides}; they are 1 to {_LARGEST_STRIDE}"
    return ""
