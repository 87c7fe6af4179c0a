"""Prebuilt functions and the autotuner: the places where a plan picks a configuration.

A family offers candidates by `planner.pick(...)`, the one of its rule first. Here a plan is made
with what is picked: by default what is remembered, else the rule's; under `cp.tuning` what
measurements of whole plans show to be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cubepy.array.memory import Memory
from cubepy.autotune.measure import can_tune
from cubepy.autotune.session import KEPT, is_searching, may_choose
from cubepy.autotune.signature import layout
from cubepy.autotune.space import anchor, canonical_text
from cubepy.config import get
from cubepy.kernels.calls.libraries import Library
from cubepy.record import dataclass
from cubepy.runtimes.registry import find_device

WHOLE = ("matmul", "reduction", "normalisation", "scan")
"""Families that read all elements of their arrays, so that memory bounds how fast they are. Windows
with long strides, and indices, leave some out."""
PASSES = 4
"""How often a plan is made until no place is new: a pick may lead to other places."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan picks: the family, the problem as canonical text, and its candidates as such,
    the rule's first."""

    family: str
    problem: str
    texts: tuple[str, ...]

    @property
    def name(self) -> tuple[str, str]:
        """What identifies a place of a plan; equal problems share a pick."""
        return self.family, self.problem


def memory_key(x: Memory) -> tuple[Any, ...]:
    """What of an array a problem's key holds: its type, extents within a factor of two, layout."""
    return (x.dtype, tuple(map(anchor, x.shape)), layout(x))


class Picks:
    """What a plan picks at each place, and the places where it may choose."""

    def __init__(self, chosen: dict[tuple[str, str], str], is_open: bool) -> None:
        """`chosen`: canonical texts; not `is_open`: rules decide, and nothing is noted."""
        self._chosen, self._is_open = chosen, is_open
        self.places: dict[tuple[str, str], Place] = {}

    def pick(
        self, family: str, key: Any, default: Any, others: Callable[[], Mapping[str, Any]]
    ) -> Any:
        """One of the default and the others, which are legal for the very problem."""
        if not self._is_open:
            return default
        found = {DEFAULT: default, **others()}
        place = Place(family, canonical_text(key), tuple(found))
        self.places[place.name] = place
        return found.get(self._chosen.get(place.name, ""), default)


DEFAULT = "default"
"""The text of what a family's rule gives; others are named by what they change."""
Build = Callable[[Picks], Any]
"""Makes the plan of one signature with some picks."""


def tuned_plan(
    library: Library, build: Build, arrays: Sequence[Any], given: Sequence[Any] | None
) -> Any:
    """The plan of a signature, with what is picked for it."""
    chosen: dict[tuple[str, str], str] = {}
    seen = set[tuple[str, str]]()
    picks = Picks(chosen, _is_open(library))
    plan = build(picks)
    for _ in range(PASSES):
        fresh = [place for name, place in picks.places.items() if name not in seen]
        if not fresh:
            break
        for place in fresh:
            seen.add(place.name)
            choice = _choose(place, build, dict(chosen), Operands(library, arrays, given))
            if choice.index:
                chosen[place.name] = place.texts[choice.index]
        if not chosen:
            break
        picks = Picks(chosen, True)
        plan = build(picks)
    return plan


def _is_open(library: Library) -> bool:
    """Whether anything may be picked but what rules say."""
    if is_searching() or get("checked") or not may_choose(KEPT):
        return False
    return can_tune(find_device(library.device))


def _choose(
    place: Place, build: Build, chosen: dict[tuple[str, str], str], operands: Operands
) -> Any:
    from cubepy.autotune.sources import source_of_package  # not on the way of most programs
    from cubepy.autotune.tuner import Request, choose
    from cubepy.kernels.calls.candidates import PlanCandidates

    source = source_of_package(f"kernels/{place.family}")
    name = f"cubepy.kernels.{place.family}"
    device = find_device(operands.library.device)
    request = Request(name, source, place.problem, device, place.texts, KEPT)

    def plan_of(k: int) -> Any:
        return build(Picks(chosen | {place.name: place.texts[k]}, True))

    is_whole = place.family in WHOLE
    return choose(request, lambda: PlanCandidates(place.texts, plan_of, operands, is_whole))


@dataclass(frozen=True, slots=True)
class Operands:
    """What a call was given: arrays, and results if the caller brought some."""

    library: Library
    arrays: Sequence[Any]
    given: Sequence[Any] | None
