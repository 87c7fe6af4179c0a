"""KernelIR to LLVM IR text: `void kernel(ptr args, i64 begin, i64 end)` runs cubes begin..end.

The wrapper reads the argument block; the body loops over cubes, then over units, and inside them
follows the kernel's regions. Registers map one to one to IR values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from cubepy.artifact import host_symbol
from cubepy.compilers.llvm import amx, dots, memory, numbers, printing
from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.chains import stores_running_integers
from cubepy.compilers.llvm.extrema import left_to_llvm
from cubepy.compilers.llvm.jumps import Edge, Loop, Merge
from cubepy.compilers.llvm.memory import updates_own_memory
from cubepy.compilers.llvm.scratch import ScratchPlan
from cubepy.compilers.llvm.unit_loops import UnitLoops
from cubepy.compilers.llvm.units import (
    AXES,
)
from cubepy.compilers.llvm.wrapper import wrapper
from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Param, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Type, index32
from cubepy.targets import Target

_EMITTERS = {
    **numbers.HANDLERS,
    **memory.HANDLERS,
    **printing.HANDLERS,
    **amx.HANDLERS,
    **dots.HANDLERS,
}
_FAST = "reassoc nsz arcp contract afn "


def emit(
    kernel: Kernel,
    target: Target,
    scratch: ScratchPlan,
    *,
    triple: str = "",
    layout: str = "",
    fast_math: bool = False,
    debug: bool = False,
) -> str:
    """The LLVM module of a kernel; `debug` attaches source positions to every instruction."""
    return Emitter(kernel, target, scratch, fast_math, debug).module(triple, layout)


class Emitter(UnitLoops):
    """State of one emission: the writer, registers of values, and the targets of jumps."""

    def __init__(
        self, kernel: Kernel, target: Target, scratch: ScratchPlan, fast_math: bool, debug: bool
    ) -> None:
        super().__init__(kernel, target, debug)
        self.scratch = scratch
        self.fast = _FAST if fast_math else ""
        self._constants: dict[Value, int | float] = {}
        self.parameters = {p.value for p in kernel.params}
        self._loops: list[Loop] = []
        self._reports_faults = any(op.row is ops.FAULT for op in kernel.body.walk())
        self.orders_storage = any(op.row is ops.SYNC_STORAGE for op in kernel.body.walk())

    # Values

    @cached_property
    def folds(self) -> frozenset[Op]:
        """Extremes that LLVM makes lines of."""
        return left_to_llvm(self.kernel)

    def constant_of(self, value: Value) -> int | float | None:
        """The number of a constant, which a line has in every lane."""
        return self._constants.get(value)

    def intrinsic(self, name: str, t: Type, *args: str) -> str:
        """An LLVM intrinsic on operands of one type."""
        text = spell.type_name(t)
        return self.w.call(f"llvm.{name}.{spell.suffix(t)}", text, *((text, a) for a in args))

    def scratch_parameter(self, block: Value) -> str:
        """The parameter of `cubes` that a block of scratch memory is passed by.

        A parameter each, so that LLVM knows that blocks and arguments do not overlap.
        """
        return f"%scratch.{self.scratch.offsets[block]}"

    # The module

    def module(self, triple: str, layout: str) -> str:
        params = [self._param(p) for p in self.kernel.params]
        counts = [f"i64 %count_{a}" for a in AXES]
        self.body()
        record = ["ptr %faults"] if self._reports_faults else []
        kept = "ptr noalias nonnull align 64"
        blocks = [f"{kept} {self.scratch_parameter(v)}" for v in self.scratch.offsets]
        args = ", ".join([*params, *counts, *record, *blocks, "i64 %begin", "i64 %end"])
        name = host_symbol(self.kernel.name)
        head = f"define internal void @{name}.cubes({args}) #1{self.w.attach(0)} {{"
        body = [head, "entry:", *self.w.entry, *self.w.lines, "}", ""]
        return self.w.module(
            [
                *wrapper(self.kernel, self.scratch, self.w, self._reports_faults),
                *body,
                self._attributes(),
            ],
            triple,
            layout,
        )

    def _param(self, param: Param) -> str:
        value = param.value
        name = value.name  # the dot keeps it apart from the compiler's own names
        register = f"%{name}.arg" if name.isascii() else self.w.fresh(name)
        self._registers[value] = register
        if not isinstance(value.type, Buffer):
            return f"{spell.type_name(value.type)} {register}"
        written = param.argument in self.kernel.written
        flags = " noalias" if self.kernel.noalias else ""
        return f"ptr{flags}{'' if written else ' readonly'} {register}"

    def _attributes(self) -> str:
        """`noinline` on the loops over cubes: LLVM would optimise them once more in the wrapper."""
        width = f'"prefer-vector-width"="{self.target.line_bytes * 8}"'
        return (
            f"attributes #0 = {{ nounwind {width} }}\n"
            f"attributes #1 = {{ nounwind noinline {width} }}\n"
        )

    # Regions

    def op(self, op: Op) -> None:
        """Emit one operation."""
        self.w.at(op.span)
        if op.results and op.results[0] in self._given:
            self._registers[op.result] = self._given[op.result]
            return
        control = _CONTROL.get(op.row)
        if control is not None:
            control(self, op)
            return
        handler = _EMITTERS.get(op.row)
        if handler is None:
            raise fail(
                "E310",
                op.span,
                op=f"`{op.row.name}`",
                target=self.target,
                reason="the LLVM compiler has no form for it",
                suggestion="",
            )
        register = handler(self, op)
        if op.results:
            self._registers[op.result] = register
            self._note(op)

    def _note(self, op: Op) -> None:
        """Keep constants, which later operations look up."""
        value = op.attrs.get("value")
        if op.row is ops.SPLAT and op.operands[0] in self._constants:
            self._constants[op.result] = self._constants[op.operands[0]]
        if op.row is ops.CONST and isinstance(value, int | float):
            self._constants[op.result] = value

    def _position(self, op: Op) -> None:
        axis = str(op.attrs["axis"])
        kind = {ops.UNIT_POS: "unit", ops.CUBE_POS: "cube", ops.ABSOLUTE_POS: "absolute"}.get(
            op.row
        )
        if kind is not None:
            register = self._cubes.positions[f"{kind}_{axis}"]
        elif axis != "all":
            register = f"%count_{axis}"
        else:
            partial = self.w.value("mul nsw i64 %count_x, %count_y")
            register = self.w.value(f"mul nsw i64 {partial}, %count_z")
        if op.result.type is index32:
            register = self.w.value(f"trunc i64 {register} to i32")
        self._registers[op.result] = register

    def _if(self, op: Op) -> None:
        w = self.w
        if op in self._cheap:
            region = self._cheap[op].cheap
            self._ops(region.ops[:-1])
            for result, operand in zip(op.results, region.terminator.operands, strict=True):
                self._registers[result] = self._registers[operand]
            return
        (condition,) = self.operands(op)
        yes, no, after = w.label("then"), w.label("else"), w.label("after")
        merge = Merge(after, [])
        w.branch(condition, yes, no)
        for label, region in ((yes, op.regions[0]), (no, op.regions[1])):
            w.start(label)
            self._merges.append(merge)
            self._ops(region.ops)
            self._merges.pop()
        w.start(after)
        if not merge.edges:
            w.line("unreachable")
            w.start(w.label("dead"))
        self._phis(op.results, merge.edges)

    def _phis(self, results: tuple[Value, ...], edges: list[Edge]) -> None:
        for k, result in enumerate(results):
            t = spell.type_name(result.type)
            if not edges:
                self._registers[result] = "poison"
                continue
            pairs = ", ".join(f"[{values[k]}, %{block}]" for block, values in edges)
            self._registers[result] = self.w.value(f"phi {t} {pairs}", result.name)

    def _yield(self, op: Op) -> None:
        merge = self._merges[-1]
        merge.edges.append((self.w.block, self.operands(op)))
        self.w.jump(merge.after)

    def _for(self, op: Op) -> None:
        """Tested at its head, where the position after the last one is known to fit; else before it
        and behind its body.
        """
        w = self.w
        start, stop, step = self.operands(op)[:3]
        (body,) = op.regions
        loop = Loop(w.label("for_next"), w.label("for_end"))
        head, inside = w.label("for"), w.label("for_body")
        initial = self.operands(op)[3:]
        counts = bool(op.attrs.get("fits")) or self.constant_of(op.operands[2]) in (1, -1)
        last = ""
        if not counts:
            last = w.call("llvm.ssub.sat.i64", "i64", ("i64", stop), ("i64", step), hint="last")
            w.branch(self._more(op, start, stop, step), head, loop.end)
            loop.exits.append((w.block, initial))
        before = w.block
        if counts:
            w.jump(head)
        w.start(head)
        position, following = w.fresh(body.args[0].name), w.fresh("next")
        self._registers[body.args[0]] = position
        marks = self._carry(body.args[1:], len(w.lines) + 1)
        at = len(w.lines) - len(marks)
        w.lines.insert(at, "")
        if counts:
            w.branch(self._more(op, position, stop, step), inside, loop.end)
            loop.exits.append((w.block, [self._registers[v] for v in body.args[1:]]))
            w.start(inside)
        self._loop_body(loop, body)
        w.start(loop.following)
        merged = self._merge_continues(loop, body.args[1:])
        if not counts:
            w.branch(self._more(op, position, last, step), inside, loop.end)
            loop.exits.append((w.block, merged))
            w.start(inside)
        t = spell.type_name(op.operands[0].type)
        w.line(f"{following} = add nsw {t} {position}, {step}")
        latch = w.block
        unrolled = updates_own_memory(body.ops) or stores_running_integers(op)
        w.jump_back(head, unrolled=unrolled)
        w.lines[at] = f"  {position} = phi {t} [{start}, %{before}], [{following}, %{latch}]"
        self._fill(body.args[1:], at + 1, (before, initial), (latch, merged))
        w.start(loop.end)
        self._phis(op.results, loop.exits)

    def _more(self, op: Op, position: str, stop: str, step: str) -> str:
        """Whether a position is before the end; a step of 0 has none."""
        w, known = self.w, self.constant_of(op.operands[2])
        t = spell.type_name(op.operands[0].type)
        if known is None and op.attrs.get("rising"):
            known = 1
        if known is not None:
            word = "slt" if known > 0 else "sgt"
            return w.value(f"icmp {word} {t} {position}, {stop}") if known else "false"
        up = w.value(f"icmp sgt {t} {step}, 0")
        down = w.value(f"icmp slt {t} {step}, 0")
        below = w.value(f"icmp slt {t} {position}, {stop}")
        above = w.value(f"icmp sgt {t} {position}, {stop}")
        rising = w.value(f"and i1 {up}, {below}")
        falling = w.value(f"and i1 {down}, {above}")
        return w.value(f"or i1 {rising}, {falling}")

    def _carry(self, args: tuple[Value, ...], at: int) -> list[str]:
        """Reserve phis for carried values; their edges are known at the end of the body."""
        marks: list[str] = []
        for arg in args:
            self._registers[arg] = self.w.fresh(arg.name)
            self.w.lines.append("")
            marks.append(self._registers[arg])
        return marks

    def _fill(self, args: tuple[Value, ...], at: int, first: Edge, again: Edge) -> None:
        for k, arg in enumerate(args):
            t, name = spell.type_name(arg.type), self._registers[arg]
            edges = ", ".join(f"[{values[k]}, %{block}]" for block, values in (first, again))
            self.w.lines[at + k] = f"  {name} = phi {t} {edges}"

    def _loop_body(self, loop: Loop, body: Region) -> None:
        self._loops.append(loop)
        self._ops(body.ops)
        self._loops.pop()

    def _merge_continues(self, loop: Loop, args: tuple[Value, ...]) -> list[str]:
        merged: list[str] = []
        for k, arg in enumerate(args):
            t = spell.type_name(arg.type)
            if not loop.continues:
                merged.append("poison")
                continue
            pairs = ", ".join(f"[{values[k]}, %{block}]" for block, values in loop.continues)
            merged.append(self.w.value(f"phi {t} {pairs}", arg.name))
        return merged

    def _loop(self, op: Op) -> None:
        w = self.w
        (body,) = op.regions
        loop = Loop(w.label("loop_next"), w.label("loop_end"))
        head, before = w.label("loop"), w.block
        w.jump(head)
        w.start(head)
        at = len(w.lines)
        self._carry(body.args, at)
        self._loop_body(loop, body)
        w.start(loop.following)
        if loop.continues:
            merged = self._merge_continues(loop, body.args)
            self._fill(body.args, at, (before, self.operands(op)), (w.block, merged))
            w.jump(head)
        else:
            self._fill_once(body.args, at, (before, self.operands(op)))
            w.line("unreachable")
        w.start(loop.end)
        if not loop.exits:
            w.line("unreachable")
            w.start(w.label("dead"))
        self._phis(op.results, loop.exits)

    def _fill_once(self, args: tuple[Value, ...], at: int, edge: Edge) -> None:
        block, values = edge
        for k, arg in enumerate(args):
            t, name = spell.type_name(arg.type), self._registers[arg]
            self.w.lines[at + k] = f"  {name} = phi {t} [{values[k]}, %{block}]"

    def _continue(self, op: Op) -> None:
        loop = self._loops[-1]
        loop.continues.append((self.w.block, self.operands(op)))
        self.w.jump(loop.following)

    def _break(self, op: Op) -> None:
        loop = self._loops[-1]
        loop.exits.append((self.w.block, self.operands(op)))
        self.w.jump(loop.end)

    def _fault(self, op: Op) -> None:
        """The first unit that gets here writes the record; see `artifact.FAULT_WORDS`."""
        w = self.w
        pair = w.value("cmpxchg ptr %faults, i64 0, i64 1 monotonic monotonic, align 8")
        first = w.value(f"extractvalue {{ i64, i1 }} {pair}, 1")
        note, after = w.label("note"), w.label("noted")
        w.branch(first, note, after)
        w.start(note)
        unit, cube = (self._cubes.positions[name] for name in ("unit_all", "cube_all"))
        noted = self.operands(op)
        if "lanes" in op.attrs:
            unit = w.value(f"mul nsw i64 {unit}, {op.attrs['lanes']}")
            unit = w.value(f"add nsw i64 {unit}, {noted.pop()}")
        for k, word in enumerate([str(op.attrs["code"]), unit, cube, *noted]):
            address = w.value(f"getelementptr i64, ptr %faults, i64 {k + 1}")
            w.line(f"store i64 {word}, ptr {address}, align 8")
        w.jump(after)
        w.start(after)

    def _return(self, op: Op) -> None:
        self.w.jump(self._unit_end)


_POSITION_ROWS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
_CONTROL: dict[OpDef, Callable[[Emitter, Op], None]] = {
    ops.IF: Emitter._if,
    ops.FOR: Emitter._for,
    ops.LOOP: Emitter._loop,
    ops.YIELD: Emitter._yield,
    ops.CONTINUE: Emitter._continue,
    ops.BREAK: Emitter._break,
    ops.RETURN: Emitter._return,
    ops.FAULT: Emitter._fault,
    ops.UNITS: Emitter._units_op,
    ops.PLANES: Emitter._planes_op,
    ops.PLANE_POS: Emitter._plane_pos,
    **dict.fromkeys(_POSITION_ROWS, Emitter._position),
}
