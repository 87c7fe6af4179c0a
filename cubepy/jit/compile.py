"""Specialisations of a kernel: compiled once for each signature, re-made when captures change."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from operator import is_
from threading import RLock
from types import CodeType
from typing import Any
from weakref import WeakSet

from cubepy.artifact import Artifact
from cubepy.cache.kept import NOTHING_KEPT, Kept, kept_forms
from cubepy.cache.objects import keep_objects
from cubepy.collection import paused_collection
from cubepy.compilers.registry import find_compiler
from cubepy.frontend.facts import Facts
from cubepy.frontend.signature import Signature, comptime_key, comptime_type
from cubepy.ir.core import Kernel
from cubepy.ir.depth import deep_calls
from cubepy.jit.ahead import check_kept, is_ahead, note_kernel
from cubepy.jit.classes import alignment_of
from cubepy.lang.arrays import content, is_numpy
from cubepy.lang.containers import buffer, is_mapping, is_ordered, listed, may_change_inside
from cubepy.meanwhile import is_helping
from cubepy.options import Options
from cubepy.record import dataclass
from cubepy.runtimes.native.launching import state
from cubepy.targets import Target

MAX_VARIANTS = 64
"""Specialisations of one signature, for different values of captured names, that are kept."""
MAX_SIGNATURES = 256
"""Signatures whose specialisations are kept; those not launched for long go first."""


_FIXED = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types of objects that never change."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured name: where it is read, and what it was when the kernel was compiled. `objects`:
    what it held, if that is nothing that changes; the same objects need no closer look."""

    read: Callable[[str], Any]
    name: str
    value: Any
    key: Any
    is_container: bool
    objects: tuple[Any, ...] | None

    def is_unchanged(self) -> bool:
        """Whether the name still means the same."""
        try:
            return self.was(self.read(self.name))
        except (KeyError, AttributeError):
            return False

    def was(self, now: Any) -> bool:
        """Whether the name meant the same as this when the kernel was compiled."""
        if now is self.value and not self.is_container:
            return True
        if type(now) is not type(self.value):
            return False
        return self._holds_the_same(now) or _equal(_snapshot(now), self.key)

    def _holds_the_same(self, now: Any) -> bool:
        """Whether a container holds the objects that it held; False where that says nothing."""
        if self.objects is None:
            return False
        found = _objects(now)
        return len(found) == len(self.objects) and all(map(is_, found, self.objects))


def _objects(value: Any) -> tuple[Any, ...]:
    return (*value, *value.values()) if type(value) is dict else tuple(value)


def _fixed_objects(value: Any) -> tuple[Any, ...] | None:
    """What a plain container holds, in order; None if it is none, or holds what may change."""
    if type(value) not in (dict, list, tuple):
        return None
    found = _objects(value)
    return found if all(map(_is_fixed, found)) else None


def _is_fixed(value: Any) -> bool:
    return type(value) in _FIXED or (type(value) is tuple and all(map(_is_fixed, value)))


def _snapshot(value: Any) -> Any:
    """What a captured value is now: containers by their items, which may change in place, also
    while another thread looks at them."""
    if is_numpy(value):
        return content(value)
    if isinstance(value, CodeType):
        return id(value)  # equal code may come from different text
    if isinstance(value, partial):
        return [_snapshot(v) for v in (value.func, value.args, value.keywords)]
    if is_mapping(value):
        return type(value), [(_snapshot(k), _snapshot(v)) for k, v in listed(value.items())]
    if is_ordered(value):
        return type(value), [_snapshot(v) for v in listed(value)]
    if isinstance(value, set):
        return {(comptime_key(v), comptime_type(v)) for v in listed(value)}
    numbers = buffer(value)
    if numbers is not None:
        return numbers
    return comptime_key(value), comptime_type(value)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False


@dataclass(slots=True, eq=False)
class Compiled:
    """A specialisation: its code, loaded on the `device` of that name, and what the launch must
    know. `marks` are words that native launches write, see `runtimes.native.launching.state`;
    `is_retired`: no longer kept."""

    artifact: Artifact
    device: str
    loaded: Any
    facts: Facts
    captured: tuple[Captured, ...]
    is_retired: bool = False
    marks: Any = field(default_factory=lambda: _marks())

    @property
    def is_used(self) -> bool:
        """Whether it was launched since that was last denied."""
        return bool(self.marks[state.IS_USED])

    @is_used.setter
    def is_used(self, value: bool) -> None:
        self.marks[state.IS_USED] = value

    def is_current(self) -> bool:
        """Whether everything that the kernel captured is unchanged."""
        return all(c.is_unchanged() for c in self.captured)


def _marks() -> Any:
    return (ctypes.c_int64 * state.WORDS)(1)


def captured_of(facts: Facts) -> tuple[Captured, ...]:
    """The captures that a trace used, and Python's own names, which the user may define later."""
    return tuple(
        Captured(
            captures.lookup,
            name,
            value,
            _snapshot(value),
            may_change_inside(value) or isinstance(value, tuple | partial) or is_numpy(value),
            _fixed_objects(value),
        )
        for captures, name, value in facts.captures.values()
    )


_all: WeakSet[Specialisations] = WeakSet()


def _after_fork() -> None:
    for made in list(_all):
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


keep_objects()


class Specialisations:
    """All compiled forms of one function under one set of options, in force; safe for threads."""

    def __init__(self, function: Any, options: Options) -> None:
        self._function = function
        self.options = options
        self._lock = RLock()
        self._made: dict[tuple[Signature, Target], list[Compiled]] = {}
        self._facts: dict[tuple[Signature, Target], tuple[Facts, tuple[Captured, ...]]] = {}
        self._kernels: dict[tuple[Signature, Target], Kernel] = {}
        """Traced kernels, before all passes."""
        self._kept: dict[tuple[Signature, Target], Kept] = {}
        self._last: Kernel | None = None
        self.retired = 0
        """How many specialisations are no longer kept."""
        _all.add(self)

    def after_fork(self) -> None:
        """A thread that is lost may have held the lock; what it made was not there yet."""
        self._lock = RLock()

    def alignment(self, target: Target) -> int:
        """What rows of aligned tensors begin at multiples of, in bytes."""
        return alignment_of(target)

    def facts(self, signature: Signature, target: Target) -> Facts:
        """What a trace of the function finds for this signature."""
        return self.seen(signature, target)[0]

    def seen(self, signature: Signature, target: Target) -> tuple[Facts, tuple[Captured, ...]]:
        """The facts of a trace and what it captured; its kernel waits for `get`."""
        key = (signature.traced(), target)
        with self._lock:
            found = self._facts.get(key)
            if found is None or not all(c.is_unchanged() for c in found[1]):
                facts = self._kept_facts(key)
                found = self._facts[key] = facts, captured_of(facts)
                while len(self._facts) > 2 * MAX_SIGNATURES:  # some are looked at before another
                    oldest = next(iter(self._facts))
                    del self._facts[oldest]
                    self._kernels.pop(oldest, None)
                    self._kept.pop(oldest, None)
            return found

    def _kept_facts(self, key: tuple[Signature, Target]) -> Facts:
        """The facts of an earlier process's trace, or of one that is made now."""
        self._kernels.pop(key, None)
        kept = self._kept[key] = kept_forms(self._function, *key)
        facts = kept.facts()
        if facts is None:
            check_kept()
            self._kernels[key], facts = self.trace(*key)
            if kept_forms(self._function, *key).key == kept.key:  # the trace changed no capture
                kept.keep_facts(facts)
            else:
                self._kept.pop(key)
        return facts

    def check(self, kernel: str, matcher: Any) -> None:
        """Refuse arguments that the function's IR was not made for; traces are made for all."""

    def trace(self, signature: Signature, target: Target) -> tuple[Kernel, Facts]:
        """The kernel before all passes, and its facts; nothing is kept."""
        with paused_collection():
            from cubepy.frontend.specialise import specialise  # not where all code comes from disk

            return specialise(self._function, signature, target)

    def get(self, signature: Signature, device: Any) -> Compiled:
        """The compiled form for a signature, made now if there is none."""
        if is_ahead():
            return self._compile(signature, device)
        key = (signature, device.target)
        for compiled in self._made.get(key, ()):
            if compiled.device == device.name and compiled.is_current():
                compiled.is_used = True
                return compiled
        with self._lock:
            variants = self._made.setdefault(key, [])
            current = [compiled for compiled in variants if compiled.is_current()]
            for compiled in current:
                if compiled.device == device.name:
                    return compiled
            if current:  # of another device of the same kind, whose code will do
                loaded = device.load(current[0].artifact)
                compiled = replace(current[0], device=device.name, loaded=loaded, marks=_marks())
            else:
                compiled = self._compile(signature, device)
            self._retire(variants[: max(0, len(variants) - MAX_VARIANTS + 1)])
            del variants[: max(0, len(variants) - MAX_VARIANTS + 1)]
            variants.append(compiled)
            while len(self._made) > MAX_SIGNATURES:
                self._forget_one(key)
            return compiled

    def _forget_one(self, newest: tuple[Signature, Target]) -> None:
        """Keep the specialisations of one signature less: of the first that nobody launched since
        it was last passed over."""
        for key in list(self._made):
            variants = self._made.pop(key)
            if key != newest and not any(compiled.is_used for compiled in variants):
                break
            for compiled in variants:
                compiled.is_used = False
            self._made[key] = variants
        else:
            key = next(k for k in self._made if k != newest)
            variants = self._made.pop(key)
        self._retire(variants)
        self._facts.pop(key, None)
        self._kernels.pop(key, None)
        self._kept.pop(key, None)

    def _retire(self, variants: list[Compiled]) -> None:
        for compiled in variants:
            compiled.is_retired = True
        self.retired += len(variants)

    def _compile(self, signature: Signature, device: Any) -> Compiled:
        target = device.target
        facts, captured = self.seen(signature, target)
        kept = self._kept.get((signature.traced(), target))
        artifact = kept and kept.artifact(signature, target, self.options)
        if artifact is None:
            check_kept()
            artifact, facts = self._make(signature, target, facts)
            captured = captured_of(facts)
        if is_ahead():
            last, self._last = self._last, None
            note_kernel(artifact, last, lambda: self._optimised(signature, target))
            return Compiled(artifact, device.name, None, facts, captured)
        if target.kind == "cuda" and not is_helping():
            from cubepy.jit.miscompilations import examine_once  # a CPU's first launch goes without

            examine_once(device)
        return Compiled(artifact, device.name, device.load(artifact), facts, captured)

    def _make(self, signature: Signature, target: Target, facts: Facts) -> tuple[Artifact, Facts]:
        """Compile now, unless another process did while this one waited for it; keep it on disk."""
        key = (signature.traced(), target)
        kept = self._kept.get(key) or NOTHING_KEPT
        with kept.compiling(signature, self.options):
            artifact = kept.artifact(signature, target, self.options)
            if artifact is not None:
                return artifact, facts
            kernel = self._kernels.pop(key, None)
            if kernel is None:
                kernel, facts = self.trace(*key)
                if kept_forms(self._function, *key).key != kept.key:  # a capture changed meanwhile
                    kept = NOTHING_KEPT
            artifact = self._build(signature.states(kernel), target)
            kept.keep_artifact(signature, self.options, facts, artifact)
        return artifact, facts

    def _build(self, kernel: Kernel, target: Target) -> Artifact:
        """Compile a traced kernel."""
        with paused_collection(), deep_calls():
            from cubepy.compilers.base import optimise

            kernel = optimise(kernel, target, self.options)
            self._last = kernel if is_ahead() else None
            return find_compiler(target.kind).build(kernel, target, self.options)

    def _optimised(self, signature: Signature, target: Target) -> Kernel:
        """The kernel of a signature whose code came from disk."""
        from cubepy.compilers.base import optimise

        traced, _ = self.trace(signature.traced(), target)
        with deep_calls():
            return optimise(signature.states(traced), target, self.options)

    def _traced(self, signature: Signature, target: Target) -> Kernel:
        """The kernel before all passes: that of the trace for the facts, while it is kept."""
        key = (signature.traced(), target)
        with self._lock:
            self.seen(signature, target)
            kernel = self._kernels.get(key)
        return self.trace(*key)[0] if kernel is None else kernel

    def text(self, signature: Signature, target: Target, stage: str) -> str:
        """The text of a stage."""
        from cubepy.compilers.base import optimise
        from cubepy.ir.printer import print_kernel

        kernel = self._traced(signature, target)
        with deep_calls():
            kernel = optimise(signature.states(kernel), target, self.options)
            if stage == "ir":
                return print_kernel(kernel)
            return find_compiler(target.kind).text(kernel, target, self.options, stage)
