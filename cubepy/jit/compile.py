"""Specialisations of a kernel: compiled once for each signature, re-made when captures change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from cubepy.artifact import Artifact
from cubepy.compilers.base import Options, to_kernel
from cubepy.compilers.registry import find_compiler
from cubepy.frontend.signature import Signature, comptime_key, comptime_type
from cubepy.frontend.tracer import Facts
from cubepy.ir.core import Kernel
from cubepy.targets import Target

MAX_VARIANTS = 64
"""Specialisations of one signature, for different values of captured names, that are kept."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured name: where it is read, and what it was when the kernel was compiled."""

    read: Callable[[str], Any]
    name: str
    value: Any
    key: Any
    is_container: bool

    def is_unchanged(self) -> bool:
        """Whether the name still means the same."""
        try:
            now = self.read(self.name)
        except (KeyError, AttributeError):
            return False
        if now is self.value and not self.is_container:
            return True
        return type(now) is type(self.value) and _equal(_snapshot(now), self.key)


def _snapshot(value: Any) -> Any:
    """What a captured value is now: containers by their items, which may change in place."""
    if isinstance(value, dict):
        return [(_snapshot(k), _snapshot(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_snapshot(v) for v in value]
    if isinstance(value, set):
        return {(comptime_key(v), comptime_type(v)) for v in value}
    return comptime_key(value), comptime_type(value)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False


@dataclass(frozen=True, slots=True)
class Compiled:
    """A specialisation: its code, loaded on the `device` of that name, and what the launch must
    know."""

    artifact: Artifact
    device: str
    loaded: Any
    facts: Facts
    captured: tuple[Captured, ...]

    def is_current(self) -> bool:
        """Whether everything that the kernel captured is unchanged."""
        return all(c.is_unchanged() for c in self.captured)


def captured_of(facts: Facts) -> tuple[Captured, ...]:
    """The captures that a trace used; Python's own names never change."""
    import builtins

    return tuple(
        Captured(
            captures.lookup,
            name,
            value,
            _snapshot(value),
            isinstance(value, dict | list | tuple | set),
        )
        for captures, name, value in facts.captures.values()
        if getattr(builtins, name, captures) is not value
    )


class Specialisations:
    """All compiled forms of one function under one set of options; safe for threads."""

    def __init__(self, function: Any, options: Options) -> None:
        self._function = function
        self._options = options
        self._lock = RLock()
        self._made: dict[tuple[Signature, Target], list[Compiled]] = {}
        self._facts: dict[tuple[Signature, Target], tuple[Facts, tuple[Captured, ...]]] = {}
        self._kernels: dict[tuple[Signature, Target], Kernel] = {}

    def facts(self, signature: Signature, target: Target) -> Facts:
        """What a trace of the function for this signature tells."""
        return self._seen(signature, target)[0]

    def _seen(self, signature: Signature, target: Target) -> tuple[Facts, tuple[Captured, ...]]:
        """The facts of a trace and what it captured; its kernel waits for `get`."""
        key = (signature, target)
        with self._lock:
            found = self._facts.get(key)
            if found is None or not all(c.is_unchanged() for c in found[1]):
                self._kernels[key], facts = self.trace(signature, target)
                found = self._facts[key] = facts, captured_of(facts)
            return found

    def trace(self, signature: Signature, target: Target) -> tuple[Kernel, Facts]:
        """The optimised kernel and its facts; nothing is kept."""
        return to_kernel(self._function, signature, target, self._options)

    def get(self, signature: Signature, device: Any) -> Compiled:
        """The compiled form for a signature, made now if there is none."""
        key = (signature, device.target)
        for compiled in self._made.get(key, ()):
            if compiled.device == device.name and compiled.is_current():
                return compiled
        with self._lock:
            variants = self._made.setdefault(key, [])
            current = [compiled for compiled in variants if compiled.is_current()]
            for compiled in current:
                if compiled.device == device.name:
                    return compiled
            if current:  # of another device of the same kind, whose code will do
                loaded = device.load(current[0].artifact)
                compiled = replace(current[0], device=device.name, loaded=loaded)
            else:
                compiled = self._compile(signature, device)
            del variants[: len(variants) - MAX_VARIANTS + 1]
            variants.append(compiled)
            return compiled

    def _compile(self, signature: Signature, device: Any) -> Compiled:
        target = device.target
        facts, captured = self._seen(signature, target)
        kernel = self._kernels.pop((signature, target), None)
        if kernel is None:
            kernel, facts = self.trace(signature, target)
            captured = captured_of(facts)
        artifact = find_compiler(target.kind).build(kernel, target, self._options)
        return Compiled(artifact, device.name, device.load(artifact), facts, captured)

    def text(self, signature: Signature, target: Target, stage: str) -> str:
        """The text of a stage."""
        from cubepy.ir.printer import print_kernel

        kernel, _ = self.trace(signature, target)
        if stage == "ir":
            return print_kernel(kernel)
        return find_compiler(target.kind).text(kernel, target, self._options, stage)
