"""What is kept of one function's compiled forms: the facts of its traces, and artifacts.

Facts and artifacts are entries of their own: a launch needs the facts to know which artifact it
wants. Both are found by the function's closure, so that a hit neither traces nor optimises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import MethodType
from typing import Any

from cubepy.artifact import Artifact
from cubepy.cache.closure import Closure, Unknown, closure_of
from cubepy.cache.codec import artifact_from, artifact_to, facts_from, facts_to
from cubepy.cache.entry import Damaged, Entry
from cubepy.cache.library import is_library, is_library_function
from cubepy.cache.store import Store, find_store
from cubepy.cache.versions import are_current, text_of, versions
from cubepy.config import get
from cubepy.frontend.facts import Facts, means_the_same
from cubepy.frontend.signature import Signature
from cubepy.hashing import sha256
from cubepy.lang.function import Attributes, Captures
from cubepy.options import Options
from cubepy.record import dataclass
from cubepy.targets import Target

KINDS = ("cpu", "cuda", "opencl", "metal")
"""Targets whose artifacts are kept: those of devices that load code."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept forms of a function for one signature of a trace and one target.

    `reason` says why there are none; `parts` is what the key was made of, for `cubepy cache why`.
    """

    store: Store | None
    name: str
    key: str
    parts: dict[str, Any]
    closure: Closure | None
    reason: str = ""

    def facts(self) -> Facts | None:
        """The facts of the trace with what it captured, if they were kept."""
        entry = self._get(self.key)
        if entry is None or self.closure is None:
            return None
        try:
            facts = facts_from(entry.header["facts"])
            reads = list(self.closure.reads.items())
            for number in entry.header["captures"]:
                key, read = reads[number]
                facts.captures[key] = (read.reader, read.name, read.value)
        except (Damaged, KeyError, TypeError, IndexError):
            return self._drop(self.key)
        return facts

    def keep_facts(self, facts: Facts) -> None:
        """Keep the facts of a trace, if the closure holds everything that it captured."""
        numbers = self._numbers_of(facts)
        if self.store is None or numbers is None or not are_current():
            return
        header = {**self._header("facts"), "facts": facts_to(facts), "captures": numbers}
        self.store.put(Entry(self.key, header, b""))

    def artifact(self, signature: Signature, target: Target, options: Options) -> Artifact | None:
        """The artifact of a signature, if it was kept."""
        key = self._key_of(signature, options)
        entry = self._get(key)
        if entry is None:
            return None
        try:
            return artifact_from(entry.header["artifact"], entry.body, target)
        except (Damaged, KeyError):
            return self._drop(key)

    def keep_artifact(
        self, signature: Signature, options: Options, facts: Facts, artifact: Artifact
    ) -> None:
        """Keep an artifact whose kernel had these facts."""
        if self.store is None or self._numbers_of(facts) is None or not are_current():
            return
        if artifact.faults and not signature.checked:  # they name places, which the key leaves out
            return
        header = {**self._header("code"), "artifact": artifact_to(artifact)}
        self.store.put(Entry(self._key_of(signature, options), header, artifact.code))

    @contextmanager
    def compiling(self, signature: Signature, options: Options) -> Iterator[None]:
        """Held by one thread of one process at a time that compiles this."""
        if self.store is None:
            yield
            return
        with self.store.lock(self._key_of(signature, options)):
            yield

    def _get(self, key: str) -> Entry | None:
        return None if self.store is None else self.store.get(key)

    def _drop(self, key: str) -> None:
        if self.store is not None:
            self.store.remove(key)

    def _key_of(self, signature: Signature, options: Options) -> str:
        """The key of an artifact: of the trace, and of all that its passes look at."""
        promises = (
            *(signature.noalias, signature.limit, signature.flat),
            *(sorted(signature.aligned), sorted(signature.small), signature.alignment),
        )
        chosen = _options(options.in_force())
        return sha256(f"{self.key} {promises!r} {chosen!r}".encode()).hexdigest()

    def _header(self, kind: str) -> dict[str, Any]:
        return {"kind": kind, "kernel": self.name, "parts": self.parts}

    def _numbers_of(self, facts: Facts) -> list[int] | None:
        """Which of the closure's reads a trace captured; None if it captured what the walk did not
        see, so that a change of that would not be a miss, or saw otherwise."""
        if self.closure is None:
            return None
        numbers = {key: number for number, key in enumerate(self.closure.reads)}
        found: list[int] = []
        for key, (reader, name, value) in facts.captures.items():
            if key in numbers and not means_the_same(self.closure.reads[key].value, value):
                return None  # another thread changed it, and perhaps back
            key = key if key in numbers else _key_of_class(name, value)
            if key in numbers:
                found.append(numbers[key])
            elif not _is_of_library(reader):
                return None
        return sorted(found)


NOTHING_KEPT = Kept(None, "", "", {}, None)


def _options(options: Options) -> tuple[Any, ...]:
    from dataclasses import fields

    return tuple((f.name, getattr(options, f.name)) for f in fields(options))


def _key_of_class(name: str, value: Any) -> tuple[int, str]:
    """Where a method of an object that the trace made is read from: its class."""
    owner = type(getattr(value, "__self__", None))
    is_own = isinstance(value, MethodType) and getattr(owner, name, None) is value.__func__
    return (id(owner), name) if is_own else (0, "")


def _is_of_library(reader: Any) -> bool:
    """Whether a capture was read in a function of a library, whose version is in the key."""
    if isinstance(reader, Captures):
        return is_library_function(reader.function)
    owner = reader.owner if isinstance(reader, Attributes) else reader
    module = getattr(owner, "__module__", None)
    return is_library(module if isinstance(module, str) else type(owner).__module__)


def kept_forms(function: Any, signature: Signature, target: Target) -> Kept:
    """What is kept of a function for the signature of a trace.

    Nothing is where the cache is off, where stages are to be printed, and where the closure of the
    function has no hash.
    """
    name = getattr(function, "__qualname__", "")
    store = find_store()
    if store is None or function is None or target.kind not in KINDS or get("dump"):
        return Kept(None, name, "", {}, None, "it is switched off")
    try:
        closure = closure_of(function, (signature.args, signature.attributes), signature.checked)
    except Unknown as unknown:
        return Kept(None, name, "", {}, None, str(unknown))
    parts = {
        "versions": versions(target.kind),
        "target": target_text(target),
        "signature": signature_text(signature),
        "checked": signature.checked,
        "module": function.__module__,
        "source": closure.parts,
    }
    chosen = repr((signature.cube_dim, signature.plane_dim, signature.checked))
    text = "\n".join((closure.key, chosen, target_key(target), text_of(versions(target.kind))))
    key = sha256(text.encode()).hexdigest()
    return Kept(store, name, key, parts, closure)


def signature_text(signature: Signature) -> str:
    """A signature for people: its arguments and its cube."""
    dims = "x".join(map(str, signature.cube_dim))
    names = ", ".join(f"{name}: {_arg_text(arg)}" for name, arg in signature.args)
    text = f"({names}) in cubes of {dims}, planes of {signature.plane_dim}"
    return f"{text}, checked" if signature.checked else text


def _arg_text(arg: Any) -> str:
    dtype = getattr(arg, "dtype", None)
    rank = getattr(arg, "rank", None)
    if dtype is None:
        return "comptime" if hasattr(arg, "value") else "struct"
    width = f" x {arg.width}" if getattr(arg, "width", 1) > 1 else ""
    return str(dtype.name) if rank is None else f"{dtype.name}[rank {rank}]{width}"


@lru_cache(maxsize=64)
def target_key(target: Target) -> str:
    """Everything that a target is, as one hash."""
    from dataclasses import fields

    values = {f.name: getattr(target, f.name) for f in fields(target)}
    text = repr([(n, sorted(v) if isinstance(v, frozenset) else v) for n, v in values.items()])
    return sha256(text.encode()).hexdigest()


def target_text(target: Target) -> str:
    """The name of a target for people, with what differs between targets of that name."""
    return f"{target} {target_key(target)[:8]}"
