"""The function that a runtime calls: it reads the argument block and calls the loops over cubes."""

from __future__ import annotations

from cubepy.artifact import host_symbol
from cubepy.compilers.llvm import amx
from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.scratch import TAKE, ScratchPlan
from cubepy.compilers.llvm.writer import Writer
from cubepy.ir.core import Kernel
from cubepy.ir.types import Buffer, Type


def wrapper(kernel: Kernel, scratch: ScratchPlan, w: Writer, reports_faults: bool) -> list[str]:
    """Its lines. The argument block has a slot of eight bytes for each parameter, then the counts
    and what `Artifact` says of more slots."""
    symbol = host_symbol(kernel.name)
    lines = [f"define void @{symbol}(ptr %args, i64 %begin, i64 %end) #0{w.attach(1)} {{"]
    lines.append("entry:")
    passed: list[str] = []
    types = [_slot_type(p.value.type) for p in kernel.params] + ["i64"] * 3
    slots = list(enumerate(types))
    if reports_faults:
        slots.append((len(types) + bool(scratch.nbytes), "ptr"))
    for k, t in slots:
        lines.append(f"  %slot{k} = getelementptr i8, ptr %args, i64 {8 * k}")
        memory_type = "i8" if t == "i1" else t
        lines.append(f"  %arg{k} = load {memory_type}, ptr %slot{k}, align 8")
        if t == "i1":
            lines.append(f"  %bool{k} = icmp ne i8 %arg{k}, 0")
        passed.append(f"{t} %{'bool' if t == 'i1' else 'arg'}{k}")
    passed += _take_scratch(scratch, w, lines, 8 * len(types))
    call = ", ".join([*passed, "i64 %begin", "i64 %end"])
    calls = [f"call void @{symbol}.cubes({call})"]
    if amx.uses_tiles(kernel):
        calls = [amx.configure(w), *calls, amx.RELEASE]
    lines += [f"  {text}{w.attach(2)}" for text in calls]
    return [*lines, "  ret void", "}", ""]


def _take_scratch(plan: ScratchPlan, w: Writer, lines: list[str], lacking_at: int) -> list[str]:
    """Ask for the thread's scratch memory; gives its blocks. Where there is none, say in the
    argument block how much was asked for, and return."""
    if not plan.nbytes:
        return []
    head, place = f"declare noalias ptr @{TAKE}(i64)", w.attach(2)
    w.declare(TAKE, head)
    lines += [
        f"  %scratch = call ptr @{TAKE}(i64 {plan.nbytes}){place}",
        "  %lacking = icmp eq ptr %scratch, null",
        "  br i1 %lacking, label %lost, label %given",
        "lost:",
        f"  %wanted = getelementptr i8, ptr %args, i64 {lacking_at}",
        f"  store atomic i64 {plan.nbytes}, ptr %wanted monotonic, align 8",
        "  ret void",
        "given:",
    ]
    for offset in plan.offsets.values():
        lines.append(f"  %block{offset} = getelementptr i8, ptr %scratch, i64 {offset}")
    return [f"ptr %block{offset}" for offset in plan.offsets.values()]


def _slot_type(t: Type) -> str:
    return "ptr" if isinstance(t, Buffer) else spell.type_name(t)
