"""What decides how a kernel synchronises, as Python generators of events: see `tests.rings`."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from math import prod
from typing import Any

from cubepy.compilers.python.ops import cast_form, form
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import Buffer, DType, Line, Space, element_of, width_of
from cubepy.passes.dce import _Marks

ALIGNED = 1024
"""What shared arrays are aligned to."""
ALL = tuple(range(16))
EVENTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("barrier_init", "barrier_arrive", "barrier_expect", "barrier_try_wait"), ALL),
    **dict.fromkeys(("tensor_load", "im2col_load"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("tensor_store", "tensor_reduce"), (0, 1, 2)),
    "tensor_multicast": (0, 1, 2, 3, 4, 5),
    "bulk_load": (0, 1, 4, 5, 6),
    **dict.fromkeys(("ldmatrix", "stmatrix"), (0, 1)),
    **dict.fromkeys(("cluster_load", "cluster_store", "cluster_arrive"), (0, 1, 2)),
    **dict.fromkeys(("fence_async", "bulk_commit", "bulk_wait", "cluster_sync"), ()),
    **dict.fromkeys(("wgmma_commit", "wgmma_wait", "set_registers"), ()),
    "wgmma": (1, 2),
}
"""Operations of `cp.cuda` that are events, and the operands that matter."""
SYNCS = {ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_UNITS}
NAMED = re.compile(r"bar\.(sync|arrive) %0, (\d+);")


# From IR to generators


def event_of(op: Op) -> str:
    """The name of the event that an operation is, empty if it is none."""
    name = op.row.name.removeprefix("cuda_")
    if op.row.name.startswith("cuda_") and name in EVENTS:
        return name
    if op.row in SYNCS:
        return name
    if op.row in (ops.LOAD, ops.STORE) and space_of(op.operands[0]) is Space.SHARED:
        return name
    if name == "ptx":
        found = NAMED.fullmatch(str(op.attrs["template"]))
        return found[1] if found else "peers" if "shared::cluster" in str(op.attrs) else ""
    return ""


def space_of(value: Value) -> Space | None:
    return value.type.space if isinstance(value.type, Buffer) else None


def integer(op: Op, name: str) -> int:
    value = op.attrs[name]
    assert isinstance(value, int)
    return value


def size_of(value: Value) -> int:
    return element_of(value.type).itemsize * width_of(value.type)


def operands_of(op: Op, event: str) -> list[Value]:
    """The operands that matter."""
    if event in EVENTS:
        found = [op.operands[k] for k in EVENTS[event] if k < len(op.operands)]
        return [v for v in found if not (event == "wgmma" and isinstance(v.type, Line))]
    if event == "store" and isinstance(op.operands[2].type, DType):
        return list(op.operands if not op.operands[2].type.is_float else op.operands[:2])
    return [] if event == "peers" else list(op.operands[:2])


class Needed(_Marks):
    """What events need."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.collect(kernel.body, None, None)
        self._work.clear()
        self._work += [op for op in kernel.body.walk() if event_of(op) or op.row is ops.RETURN]
        self.spread()

    def _need(self, op: Op) -> None:
        event = event_of(op)
        if not event:
            super()._need(op)
            return
        if op in self.parents:
            self._work.append(self.parents[op])
        self._work += operands_of(op, event)


class Writer:
    """Python text of a unit."""

    def __init__(
        self, kernel: Kernel, arguments: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> None:
        self.kernel, self.marks = kernel, Needed(kernel)
        self.lines, self.names, self.open = ["def unit(UNIT, CUBE, CUBES, RANK):"], {}, []
        self.sites: list[Op] = []
        self.known: dict[str, Any] = {"load": lambda name, k: int(arrays[name][k])}
        self.size, self.indent = 0, 1
        for p in kernel.params:
            self.names[p.value] = repr(parameter(p, arguments))

    def generator(self) -> Callable[..., Generator[Any, Any, None]]:
        """The function that makes a unit."""
        self.block(self.kernel.body)
        self.put("yield from ()")
        exec(compile("\n".join(self.lines), self.kernel.name, "exec"), self.known)
        return self.known["unit"]

    def put(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def block(self, region: Region) -> None:
        for op in region.ops:
            if op.row.is_terminator:
                self.leave(op)
            elif op in self.marks.needed:
                if op.row is ops.IF:
                    self.branch(op)
                elif op.regions:
                    self.loop(op)
                elif event := event_of(op):
                    self.event(op, event)
                else:
                    self.value(op)

    def move(self, targets: tuple[Value, ...], sources: tuple[Value, ...], of: Op) -> None:
        pairs = zip(targets, sources, of.results, strict=True)
        kept = [(self.name(t), self.name(s)) for t, s, r in pairs if r in self.marks.live]
        if kept:
            left, right = (", ".join(side) for side in zip(*kept, strict=True))
            self.put(f"{left} = {right}")

    def branch(self, op: Op) -> None:
        self.open.append(op)
        for head, region in zip(
            (f"if {self.name(op.operands[0])}:", "else:"), op.regions, strict=True
        ):
            self.put(head)
            self.indent += 1
            self.put("pass")
            self.block(region)
            self.indent -= 1
        self.open.pop()

    def loop(self, op: Op) -> None:
        (body,) = op.regions
        first = 1 if op.row is ops.FOR else 0
        fixed = len(op.operands) - len(op.results)
        for arg, result in zip(body.args[first:], op.results, strict=True):
            self.names[result] = self.name(arg)
        self.move(op.results, op.operands[fixed:], op)
        steps = ", ".join(self.name(v) for v in op.operands[:fixed])
        self.put(f"for {self.name(body.args[0])} in range({steps}):" if first else "while True:")
        self.open.append(op)
        self.indent += 1
        self.put("pass")
        self.block(body)
        self.indent -= 1
        self.open.pop()

    def leave(self, op: Op) -> None:
        if op.row is ops.RETURN:
            self.put("return")
        elif op.row is ops.YIELD:
            self.move(self.open[-1].results, op.operands, self.open[-1])
        else:
            loop = next(x for x in reversed(self.open) if x.row is not ops.IF)
            self.move(loop.results, op.operands, loop)
            self.put(op.row.name)

    def event(self, op: Op, event: str) -> None:
        given = operands_of(op, event)
        words = [repr(event), str(len(self.sites))]
        while given:
            v = given.pop(0)
            if space_of(v) is Space.TENSOR_MAP or not given or space_of(v) is not Space.SHARED:
                words.append(self.name(v))
            else:
                words.append(
                    f"{self.name(v)} + {element_of(v.type).itemsize} * {self.name(given.pop(0))}"
                )
        self.sites.append(op)
        taken = any(r in self.marks.live for r in op.results)
        self.put((f"{self.name(op.result)} = " if taken else "") + f"yield ({', '.join(words)},)")

    def value(self, op: Op) -> None:
        """A pure operation, or one whose result events need."""
        row, target = op.row, op.results[0]
        given = [self.name(v) for v in op.operands]
        if row is ops.ALLOC:
            assert op.attrs["space"] == "shared", op.attrs
            start = -(-self.size // ALIGNED) * ALIGNED
            self.size = start + integer(op, "size") * element_of(target.type).itemsize
            self.names[target] = str(start)
        elif row is ops.CONST:
            self.names[target] = f"({op.attrs['value']!r})"
        else:
            self.put(f"{self.name(target)} = {self.text(op, given)}")

    def text(self, op: Op, given: list[str]) -> str:
        row = op.row
        if row in POSITIONS:
            return POSITIONS[row].format(dim=prod(self.kernel.cube_dim))
        if row.name == "cuda_cluster_rank":
            return "RANK"
        if row.name == "cuda_address":
            shared = space_of(op.operands[0]) is Space.SHARED
            size = element_of(op.operands[0].type).itemsize
            return f"{given[0]} + {size} * {given[1]}" if shared else "0"
        if row is ops.SELECT:
            return "{1} if {0} else {2}".format(*given)
        if row is ops.LOAD:
            return f"load({given[0]}, {given[1]})"
        if row.name.startswith("plane_"):
            return f"yield ('plane', {row.name!r}, {', '.join(given)})"
        kind = op.operands[0].type
        assert isinstance(kind, DType), op
        if row in (ops.CAST, ops.BITCAST):  # of integers
            found = cast_form(kind, target) if isinstance(target := op.result.type, DType) else None
        else:
            found = form(row, kind)
        if found is not None:
            return found.format(*given)
        assert row.meaning is not None, row
        self.known[f"f{len(self.known)}"] = lambda *x, f=row.meaning: f(kind, *x)
        return f"f{len(self.known) - 1}({', '.join(given)})"


POSITIONS = {
    ops.UNIT_POS: "UNIT",
    ops.CUBE_POS: "CUBE",
    ops.CUBE_COUNT: "CUBES",
    ops.ABSOLUTE_POS: "CUBE * {dim} + UNIT",
}


def parameter(p: Any, arguments: Mapping[str, Any]) -> Any:
    """What a kernel finds in a parameter: the bytes of a box for a tensor map, a name for data."""
    kind = type(p.kind).__name__
    if kind == "TensorMapOf":
        return prod(p.kind.box) * element_of(p.value.type).itemsize
    if kind == "Data":
        return p.argument
    found: Any = arguments
    for part in p.argument.split("."):
        found = (
            found[part]
            if isinstance(found, Mapping)
            else (found[int(part)] if part.isdigit() else getattr(found, part))
        )
    if kind == "Extent":
        return int(found.shape[p.kind.axis])
    if kind == "Stride":
        return int(found.strides[p.kind.axis] // found.dtype.itemsize)
    return found if isinstance(p.value.type, DType) and p.value.type.is_float else int(found)
