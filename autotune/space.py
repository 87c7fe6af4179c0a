"""Spaces of configurations and problem keys as plain data, with one canonical text each.

Equal data has equal text in every process and on every machine, so texts serve as keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import product
from math import log2
from numbers import Real
from reprlib import repr as shortened
from typing import Any

from cubepy.ir.types import DType, find_dtype

MOST = 1 << 16
"""Configurations that a space may have before constraints; more are a mistake."""


def anchor(n: int) -> int:
    """`n` rounded up to a power of two; 0 and less stay as they are.

    Problems of about one size share a key, and so a pick.
    """
    return n if n < 1 else 1 << (n - 1).bit_length()


class Config(Mapping[str, Any]):
    """One member of a space: names with values, hashable, compared by its data."""

    __slots__ = ("_values", "text")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self.text = canonical_text(self._values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Config) else self._values == other

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"


def configurations(space: Any) -> tuple[Config, ...]:
    """All members: the product of a mapping's values, or those that a sequence lists.

    A mapping is taken in its order, the last axis fastest. `TypeError` for what is no space.
    """
    if isinstance(space, Mapping):
        axes = {str(name): _values(name, values) for name, values in space.items()}
        made = [dict(zip(axes, values, strict=True)) for values in _product(axes)]
    elif isinstance(space, Sequence) and not isinstance(space, str):
        made = [dict(member) for member in space]
    else:
        raise TypeError("a space is a mapping of names to values, or a list of mappings")
    found = tuple(dict.fromkeys(Config(values) for values in made))
    if not found:
        raise TypeError("the space is empty")
    return found


def _values(name: Any, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | range):
        raise TypeError(f"the space's {name!r} is no sequence of values")
    return tuple(values)


def variants(
    first: Any, axes: Mapping[str, Sequence[Any]], make: Callable[..., Any]
) -> dict[str, Any]:
    """What `make(first, *values)` gives for the product of the axes, by the canonical text of the
    names and values, those nearest to `first` first: a short search looks at these. What equals
    `first`, or another that came before, is left out."""
    found: dict[Any, str] = {}
    for values in product(*axes.values()):
        made = make(first, *values)
        if made != first:
            found.setdefault(made, canonical_text(dict(zip(axes, values, strict=True))))
    nearest = sorted(found.items(), key=lambda pair: distance(first, pair[0]))
    return {text: made for made, text in nearest}


def distance(a: Any, b: Any) -> float:
    """How far two dataclasses of one kind are apart: the powers of two between their numbers, and
    one for each other field that differs."""
    found = 0.0
    for f in fields(a):
        one, two = getattr(a, f.name), getattr(b, f.name)
        if type(one) is int and type(two) is int and one > 0 and two > 0:
            found += abs(log2(one / two))
        else:
            found += one != two
    return found


def differences(candidates: Sequence[Any]) -> dict[str, Any]:
    """All candidates but the first, which are dataclasses, by the canonical text of what differs
    from the first: the fields, or the class with all of them."""
    first = candidates[0]
    found: dict[str, Any] = {}
    for candidate in candidates[1:]:
        if candidate == first:
            continue
        changed: Any = candidate
        if type(candidate) is type(first):
            pairs = {f.name: getattr(candidate, f.name) for f in fields(candidate)}
            changed = {n: v for n, v in pairs.items() if v != getattr(first, n)}
        found.setdefault(canonical_text(changed), candidate)
    return found


def _product(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST:
        raise TypeError(f"the space has {count} configurations; at most {MOST}")
    return product(*axes.values())


def ranked(
    configs: Sequence[Config],
    target: Any,
    problem: Any,
    valid: Callable[..., Any] | None,
    priority: Callable[..., Any] | None,
) -> tuple[Config, ...]:
    """The legal configurations, those of higher priority first; negative ones are left out.
    `TypeError` for a priority that is no number."""
    legal = [c for c in configs if valid is None or valid(c, target, problem)]
    if priority is None:
        return tuple(legal)
    ranks = {c: priority(c, target, problem) for c in legal}
    for c, rank in ranks.items():
        if not isinstance(rank, Real) or rank != rank:
            raise TypeError(f"`priority` gives {rank!r} for {c!r}; it gives a number")
    return tuple(sorted((c for c in legal if ranks[c] >= 0), key=lambda c: -ranks[c]))


def canonical(value: Any) -> Any:
    """A value as JSON's types: mappings are sorted, types of elements and dataclasses are named.

    `TypeError` for what has no meaning outside of this process.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    if isinstance(value, DType):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: canonical(getattr(value, f.name)) for f in fields(value)}
        return {type(value).__name__: held}
    if isinstance(value, tuple | list):
        return [canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((canonical(v) for v in value), key=repr)
    return _named(value)


def _named(value: Any) -> Any:
    try:
        dtype = find_dtype(value)
    except Exception:  # some types refuse to be compared
        dtype = None
    if dtype is not None:
        return dtype.name
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return canonical(value.item())
    name = getattr(value, "__qualname__", None)
    if name is not None and "<lambda>" not in name:  # these have one name for all
        return f"{value.__module__}.{name}"
    raise TypeError(
        f"{shortened(value)} is no plain data: numbers, texts, types, tuples and mappings are"
    )


def canonical_text(value: Any) -> str:
    """The canonical value as one line of JSON."""
    import json  # not on the way of programs that tune nothing

    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
