"""Where the memory of a cube lies: small blocks on the stack, others in the thread's scratch."""

from __future__ import annotations

from cubepy.errors import Error, fail
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import element_of
from cubepy.record import dataclass
from cubepy.span import Span

TAKE = "cubepy_scratch"
"""The function of the runtime that gives a thread its scratch memory, by size."""
STACK_BLOCK = 16 << 10
STACK_BYTES = 64 << 10
"""The most that one block, and all blocks of a kernel, take of a stack. LLVM optimises
memory there best, but the stacks of other libraries' threads are small."""
LINE = 64
PAGE = 4096


@dataclass(frozen=True, slots=True)
class ScratchPlan:
    """Offsets of the blocks that lie in scratch memory, and how many bytes they take together."""

    offsets: dict[Value, int]
    nbytes: int


def block_bytes(op: Op) -> int:
    """The size of an `alloc`; none has no bytes, so that addresses differ."""
    size = op.attrs["size"]
    assert isinstance(size, int)
    return max(size, 1) * element_of(op.result.type).itemsize


def plan_scratch(kernel: Kernel, limit: int) -> ScratchPlan:
    """Place the memory of a cube; `CompileError` E308 where it asks for more than `limit` bytes.

    Blocks of whole pages are one line apart, so that their beginnings share no set of a cache.
    """
    blocks = [op for op in kernel.body.walk() if op.row is ops.ALLOC]
    stacked, on_stack = 0, set[Op]()
    for op in sorted(blocks, key=block_bytes):
        size = -(-block_bytes(op) // LINE) * LINE
        if size > STACK_BLOCK or stacked + size > STACK_BYTES:
            break
        stacked += size
        on_stack.add(op)
    offsets: dict[Value, int] = {}
    end = 0
    for op in blocks:
        if op in on_stack:
            continue
        offsets[op.result] = end
        size = -(-block_bytes(op) // LINE) * LINE
        end += size + (LINE if size % PAGE == 0 else 0)
    if stacked + end > limit:
        raise _too_much(kernel, blocks, stacked + end, limit)
    return ScratchPlan(offsets, end)


def _too_much(kernel: Kernel, blocks: list[Op], nbytes: int, limit: int) -> Error:
    """E308 at the largest block that has a line."""
    largest = max(blocks, key=lambda op: (op.span is not None, block_bytes(op)))
    span: Span | None = largest.span
    return fail(
        "E308",
        span,
        kernel=kernel.name,
        nbytes=nbytes,
        limit=limit,
        part=block_bytes(largest),
    )
