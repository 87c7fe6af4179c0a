"""Facts and artifacts as plain data, and back; `Damaged` where data describe none."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from cubepy.artifact import KINDS, Artifact, Fault, ParamKind, Slot
from cubepy.cache.entry import Damaged
from cubepy.frontend.facts import Facts
from cubepy.span import Span
from cubepy.targets import Target

_SETS = ("shaped", "written", "read", "lined")
_OWN = str(Path(__file__).parents[1])


def facts_to(facts: Facts) -> dict[str, Any]:
    """Facts without captures."""
    flags = {"uses_axes": facts.uses_axes, "lanewise": facts.lanewise}
    return {**flags, **{n: sorted(getattr(facts, n)) for n in _SETS}}


def facts_from(data: Any) -> Facts:
    """The facts that `facts_to` gave data of."""
    try:
        shaped, written, read, lined = ({_text(item) for item in data[n]} for n in _SETS)
        uses_axes, lanewise = _flag(data["uses_axes"]), _flag(data["lanewise"])
        return Facts(uses_axes, shaped, written, read, lined, lanewise)
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"facts: {error}") from None


def artifact_to(artifact: Artifact) -> dict[str, Any]:
    """An artifact without its code and its target."""
    return {
        "entry": artifact.entry,
        "slots": [[s.argument, s.dtype, _kind_to(s.kind)] for s in artifact.slots],
        "cube_dim": artifact.cube_dim,
        "faults": [[f.kind, f.argument, f.axis, _span_to(f.span)] for f in artifact.faults],
        "shared_bytes": artifact.shared_bytes,
        "scratch_bytes": artifact.scratch_bytes,
        "has_barrier_in_loop": artifact.has_barrier_in_loop,
    }


ARTIFACT_FIELDS = {
    *("target", "entry", "code", "slots", "cube_dim", "faults"),
    *("shared_bytes", "scratch_bytes", "has_barrier_in_loop"),
}
"""What an artifact consists of; a test compares, so that none is forgotten here."""


def artifact_from(data: Any, code: bytes, target: Target) -> Artifact:
    """The artifact that `artifact_to` gave data of."""
    try:
        x, y, z = (_number(n) for n in data["cube_dim"])
        return Artifact(
            target,
            _text(data["entry"]),
            code,
            tuple([Slot(_text(a), _kind_from(kind), _text(t)) for a, t, kind in data["slots"]]),
            (x, y, z),
            tuple([_fault(*fault) for fault in data["faults"]]),
            _number(data["shared_bytes"]),
            _number(data["scratch_bytes"]),
            _flag(data["has_barrier_in_loop"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"artifact: {error}") from None


def _kind_to(kind: ParamKind) -> list[Any]:
    return [kind.word, {f.name: getattr(kind, f.name) for f in fields(kind)}]


def _kind_from(data: Any) -> ParamKind:
    word, values = data
    return KINDS[word](**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def _fault(kind: Any, argument: Any, axis: Any, span: Any) -> Fault:
    return Fault(_text(kind), _text(argument), _number(axis), _span_from(span))


def _span_to(span: Span | None) -> list[Any] | None:
    """A span with its callers. CubePy's own files are named from its folder on."""
    if span is None:
        return None
    file = span.file
    if file.startswith(_OWN):
        file = f"<cubepy>{file[len(_OWN) :]}"
    place = (span.line, span.column, span.end_line, span.end_column)
    return [file, *place, span.function, _span_to(span.caller)]


def _span_from(data: Any) -> Span | None:
    if data is None:
        return None
    file, line, column, end_line, end_column, function, caller = data
    file = _text(file).replace("<cubepy>", _OWN, 1) if file.startswith("<cubepy>") else _text(file)
    place = (_number(line), _number(column), _number(end_line), _number(end_column))
    return Span(file, *place, _text(function), _span_from(caller))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is no flag")
    return value
