"""The state of one trace: the frames of inlined functions, and the names that they bind."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import field, replace
from inspect import Signature
from types import FunctionType
from typing import Any, TypeAlias

from cubepy.errors import Error
from cubepy.frontend.assigned import Assigned, assigned_names
from cubepy.frontend.facts import Facts
from cubepy.frontend.joins import Key, Learned
from cubepy.frontend.locals import Locals, numbers_of
from cubepy.frontend.naming import note_name
from cubepy.frontend.values import (
    SLOTS,
    UNSET,
    Conflict,
    Flag,
    NumberSlot,
    TensorRef,
    holds_values,
    is_number,
    memory_of,
)
from cubepy.frontend.wording import describe_slot
from cubepy.ir.core import Region, Value
from cubepy.lang.function import Captures, Source
from cubepy.record import dataclass
from cubepy.span import Span
from cubepy.targets import Target

Bound: TypeAlias = dict[str, Any]
"""What names are bound to."""


@dataclass
class LoopContext:
    """An open loop of a frame; `depth` is the number of open runtime regions inside the frame."""

    is_runtime: bool
    depth: int
    key: Key
    is_wrapped: bool = False
    is_sure: bool = False
    """Whether it is a `for` that is known to have an iteration."""
    is_endless: bool = False
    """Whether nothing but a `break` ends it."""
    leave_flag: Flag | None = None
    else_flag: Flag | None = None
    names: frozenset[str] = frozenset()
    """The names that its body assigns."""
    before: Bound = field(default_factory=dict[str, Any])
    """What the names were bound to before it."""
    reads: dict[str, Span | None] = field(default_factory=dict[str, "Span | None"])
    """Which of these names an iteration reads as they were at its start."""
    conflicts: dict[str, Conflict] = field(default_factory=dict[str, Conflict])
    """Which of these names have another type at its end."""
    start: Bound = field(default_factory=dict[str, Any])
    """What all names were bound to before the loop; `before`: before its present iteration."""
    broken: list[Bound] = field(default_factory=list["Bound"])
    """What the names are bound to at each `break`."""
    ended: list[Bound] = field(default_factory=list["Bound"])
    """The same at each end of an iteration, which the next one may follow."""
    joined: Bound = field(default_factory=dict[str, Any])
    """The locals that all exits assign."""
    body: Region = Region((), ())
    """What was traced of it, whose values and memory are none behind it."""


class Frame:
    """One activation of an inlined function: its names, its open loops, and how it returns."""

    def __init__(
        self,
        tracer: Tracer,
        source: Source,
        captures: Captures | None,
        path: Key,
        caller: Span | None,
        parent: Frame | None = None,
    ) -> None:
        self.tracer = tracer
        self.source = source
        self.captures = captures
        self.path = path
        self.caller = caller
        self.parent = parent
        self.scope: Frame = self  # whose names functions that are made here see
        self.env: dict[str, Any] = {}
        self.given: dict[str, Any] = {}  # the arguments
        self.hidden: dict[str, Any] = {}  # names of a `:=` that may not have run
        self.slots: dict[str, Any] = {}
        self.forced: set[str] = set()
        self.loose: set[str] = set()
        """Names that are bound by a loop that was left: what is assigned next may have any type."""
        self.lost: dict[str, dict[Key, Any]] = {}
        """Names that loops left unset, as exits bind them differently: what one exit bound."""
        self.assigned: Assigned = assigned_names(source.node, source.has_walrus)
        self.loops: list[LoopContext] = []
        self.depth = 0
        self.operands = 0
        """How many operands around what is traced may not run, of `and`, `or` and the like."""
        self.unrolled: Key = ()
        self.calls: Counter[Key] = Counter()
        self._spans: dict[ast.AST, Span] = {}
        self.is_kernel = False
        self.has_result = False
        self.result: Any = None
        self.return_flag: Flag | None = None

    def span(self, node: ast.AST) -> Span:
        """Where `node` stands, with the calls that led here."""
        known = self._spans.get(node)
        if known is None:
            known = self._spans[node] = self._span(node)
        return known

    def _span(self, node: ast.AST) -> Span:
        s, offset = self.source, self.source.column_offset
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return Span(
            s.file, line, column + offset, end_line, end_column + offset, s.name, self.caller
        )

    def key(self, node: ast.AST, *more: Any) -> Key:
        """Identifies a place of this activation across restarts."""
        names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
        place = tuple([getattr(node, name, 0) for name in names])
        return (*self.path, *self.unrolled, place, *more)

    def call_key(self, node: ast.AST) -> Key:
        """Identifies the next call inlined at `node`, which may make several."""
        key = self.key(node)
        self.calls[key] += 1
        return (*key, self.calls[key])


class Tracer(Locals):
    """Builds one kernel; shared by all frames."""

    def __init__(
        self,
        target: Target,
        cube_dim: tuple[int, int, int],
        plane_dim: int,
        learned: Learned,
        strict: bool = False,
    ) -> None:
        super().__init__(learned)
        self.target = target
        self.cube_dim = cube_dim
        self.plane_dim = plane_dim
        self.strict = strict  # asked for: also what has a defined result is a fault
        self.checked = strict or "checks" in target.features
        self.only_where: Value | None = None  # where checks must hold, if not everywhere
        self.facts = Facts()
        self.inlined = 0
        self.loops = 0
        """The open regions that are bodies of loops."""
        self.unrolling: list[int] = []
        """The open branches where loops began that are being unrolled."""
        self.heads: dict[FunctionType, tuple[Signature, dict[str, Any]]] = {}
        """Signatures and annotations of the functions that were inlined."""

    @property
    def branches(self) -> int:
        """The open regions that may not run."""
        return self.b.depth - self.loops


def bind(frame: Frame, name: str, value: Any) -> None:
    """Bind a name: a mutable local where the function assigns it several times, else the value; one
    with views that no branch and no loop moves is a value too, so that their strides stay known."""
    if isinstance(value, TensorRef) and value.name in ("shared", "local"):
        value = replace(value, name=name)  # memory of the kernel's own is called as it is assigned
    is_mutable = name in frame.assigned.mutable or name in frame.forced
    is_straight = not frame.depth and name in frame.assigned.straight
    if is_mutable and not (is_straight and any(True for _ in memory_of(value))):
        key, slot = (*frame.path, *frame.unrolled, name), frame.env.get(name)
        old = slot if isinstance(slot, SLOTS) and not _begins_anew(frame, name, value) else None
        slot = frame.tracer.assign(old, value, key, name, frame.depth)
        frame.slots[name] = frame.env[name] = slot
        note_name(frame, name, slot)
    else:
        frame.env[name] = value
        note_name(frame, name, value)


def _begins_anew(frame: Frame, name: str, value: Any) -> bool:
    """Whether a name that a loop left bound gets something of another type, as it may there, but
    not in an operand that may not run: then the name is what it was."""
    if name not in frame.loose or frame.operands:
        return False
    frame.loose.discard(name)
    slot = frame.env.get(name)
    if not isinstance(slot, NumberSlot) or not isinstance(value, Value):
        return True
    return value.type != slot.local.type


OF_LOOPS = "make what `{name}` holds behind the loop: it is of values of one iteration"
"""What errors about sequences, functions and dictionaries add that a loop made."""


def unset(frame: Frame, name: str, hint: str | None = None) -> Error:
    """E103; where a global has that name too, it says why it is not meant."""
    owner: Frame | None = frame
    while owner is not None and owner.captures is None:
        owner = owner.parent
    function = owner.captures.function if owner is not None and owner.captures else None
    if function is not None and name in function.__globals__:
        hint = (
            f"`{name}` is assigned in `{frame.source.name}`, so that the global is not meant here: "
            "give the local another name"
        )
    return frame.tracer.error("E103", name=name, hint=hint)


def lookup_local(frame: Frame, name: str) -> Any:
    """The value of a name in the frame; KeyError if the frame has none."""
    value = frame.env[name]
    if value is UNSET:
        value = _lost(frame, name)
    if isinstance(value, Conflict):
        raise conflict_error(frame, name, value)
    if not isinstance(value, SLOTS):
        return value
    for context in frame.loops:
        if name in context.names and context.before.get(name) is value:
            context.reads.setdefault(name, frame.tracer.b.span)
    return frame.tracer.read(value)


def _lost(frame: Frame, name: str) -> Any:
    """What an exit of a loop bound a name to that others bind differently: the next trace joins
    them, and this one goes on for what it finds. E103 for other names."""
    learned = frame.tracer.learned
    lost = {k: v for k, v in frame.lost.get(name, {}).items() if k not in learned.joining}
    if not lost:
        is_of_loop = any(map(holds_values, frame.lost.get(name, {}).values()))
        raise unset(frame, name, OF_LOOPS.format(name=name) if is_of_loop else None)
    learned.joining |= lost.keys()
    frame.tracer.is_stale = True
    frame.env[name] = slot = list(lost.values())[-1]
    return slot


def conflict_error(frame: Frame, name: str, conflict: Conflict) -> Error:
    """E210: two paths bound a name to values of different types."""
    old, new = (_described(slot) for slot in (conflict.old, conflict.new))
    return frame.tracer.error("E210", name=name, old=old, new=new, hint=_of_indices(old, new))


def _described(slot: Any) -> str:
    """What a slot holds, and where that was assigned."""
    while isinstance(slot, Conflict):  # of a path on which paths met before
        slot = slot.new
    numbers = numbers_of(slot)
    place = numbers[-1].local.span if numbers else None
    if place is None:
        return describe_slot(slot)
    types = ", ".join(dict.fromkeys(describe_slot(x) for x in numbers))
    text = types if isinstance(slot, NumberSlot) else f"{describe_slot(slot)} of {types}"
    return f"{text} (line {place.line})"


def store_back(frame: Frame, context: LoopContext) -> None:
    """Where an iteration ends: names that it bound anew go back into the locals of the loop."""
    for name in context.names:
        old, new = context.before.get(name), frame.env.get(name)
        if is_number(new):  # the target of an unrolled loop, which its local holds as well
            new = frame.slots.get(name, new)
        if new is old or not isinstance(old, SLOTS):
            continue
        if isinstance(new, Conflict) or not frame.tracer.store_back(old, new):
            context.conflicts.setdefault(name, Conflict(old, new))


def left_behind(frame: Frame, old: Any, new: Any) -> Any:
    """What a name is behind an operand that may not run and bound it anew: the local that it was,
    where that takes what the operand assigned, as its own type."""
    if not (isinstance(old, SLOTS) and isinstance(new, SLOTS)):
        return UNSET
    return old if frame.tracer.store_back(old, new) else Conflict(old, new)


def leave_loop(frame: Frame, context: LoopContext) -> None:
    """The names after a loop: those that it alone bound are unset; E210 for what changed its type.

    A name that an iteration reads must have at its end the type that it had at its start.
    """
    before, conflicts = context.before, context.conflicts
    for name, conflict in conflicts.items():
        if name in context.reads:
            frame.tracer.b.span = context.reads[name]
            old, new = (_described(slot) for slot in (conflict.old, conflict.new))
            hint = _of_indices(old, new)
            raise frame.tracer.error("E211", name=name, old=old, new=new, hint=hint)
    names = (*before, *(n for n in frame.env if n not in before))
    frame.env = {n: conflicts.get(n, before.get(n, UNSET)) for n in names}


def _of_indices(old: str, new: str) -> str | None:
    """What to write where an integer meets an index; None for other types."""
    before, after = old.partition(" ")[0], new.partition(" ")[0]
    if after != "index" or before not in _INTEGERS:
        return None
    what = "counters of loops and extents are of the type index"
    return f"{what}: convert them, as in cp.{before}(j)"


_INTEGERS = ("i8", "i16", "i32", "u8", "u16", "u32", "u64")
