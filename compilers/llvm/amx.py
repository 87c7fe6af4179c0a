"""Emission of the tiles of x86 processors (AMX), by LLVM's forms with immediate numbers of tiles.

The wrapper of a kernel that uses tiles sets their shapes before the cubes of a task run, and frees
them after, so that nobody saves them when threads are switched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubepy.compilers.llvm.memory import pointer
from cubepy.compilers.llvm.numbers import Emit
from cubepy.ir import amx
from cubepy.ir.core import Kernel, Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import element_of
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter
    from cubepy.compilers.llvm.writer import Writer

_PALETTE, _WIDTHS, _HEIGHTS, _SIZE = 1, 16, 48, 64
"""A configuration: its palette, the bytes of a row of each tile (16 bits), and the rows."""


def uses_tiles(kernel: Kernel) -> bool:
    """Whether a kernel needs the shapes of tiles to be set."""
    return any(op.row in HANDLERS for op in kernel.body.walk())


def refused(target: Target) -> dict[OpDef, str]:
    """The operations that a CPU lacks, with the reason."""
    reason = "it needs a processor with AMX, and the permission of the system"
    lacking = {} if "amx-tile" in target.features else dict.fromkeys(amx.ROWS, reason)
    kinds = {"amx-bf16", "amx-int8"} - target.features
    return lacking if lacking or not kinds else dict.fromkeys((amx.MULTIPLY,), reason)


def configure(w: Writer) -> str:
    """The instruction that sets the shape of all tiles: 16 rows of 64 bytes."""
    block = bytearray(_SIZE)
    block[0] = _PALETTE
    for tile in amx.TILES:
        block[_WIDTHS + 2 * tile] = amx.ROW_BYTES
        block[_HEIGHTS + tile] = amx.TILE_ROWS
    numbers = ", ".join(f"i8 {byte}" for byte in block)
    table = w.table(f"[{_SIZE} x i8] [{numbers}], align 64")
    w.declare("llvm.x86.ldtilecfg", "declare void @llvm.x86.ldtilecfg(ptr)")
    w.declare("llvm.x86.tilerelease", "declare void @llvm.x86.tilerelease()")
    return f"call void @llvm.x86.ldtilecfg(ptr {table})"


RELEASE = "call void @llvm.x86.tilerelease()"


def _number(op: Op, name: str = "tile") -> tuple[str, str]:
    return "i8 immarg", str(op.attrs[name])


def _call(e: Emitter, name: str, *args: tuple[str, str]) -> str:
    """A call whose declaration says which arguments are immediate, which the call must not."""
    types = ", ".join(t for t, _ in args)
    e.w.declare(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({types})")
    passed = ", ".join(f"{t.removesuffix(' immarg')} {v}" for t, v in args)
    e.w.line(f"call void @llvm.x86.{name}({passed})")
    return ""


def _zero(e: Emitter, op: Op) -> str:
    return _call(e, "tilezero", _number(op))


def _move(e: Emitter, op: Op) -> str:
    name = "tileloadd64" if op.row is amx.LOAD else "tilestored64"
    step, size = e.operands(op)[2], element_of(op.operands[0].type).itemsize
    step = e.w.value(f"mul nsw i64 {step}, {size}")
    address = pointer(e, op, "getelementptr inbounds")
    return _call(e, name, _number(op), ("ptr", address), ("i64", step))


def _multiply(e: Emitter, op: Op) -> str:
    name = amx.PRODUCTS[str(op.attrs["elements"])]
    return _call(e, name, *(_number(op, k) for k in ("sums", "left", "right")))


HANDLERS: dict[OpDef, Emit] = {
    amx.ZERO: _zero,
    amx.LOAD: _move,
    amx.STORE: _move,
    amx.MULTIPLY: _multiply,
}
