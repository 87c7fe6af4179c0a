"""Warps: units that exchange registers, and wait for each other and for all of the cube."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.compilers.ptx.parser import Instruction

WARP = 32
EXCHANGES = ("shfl", "vote")
_ALL = 0xFFFF_FFFF
_WAYS: dict[str, Callable[[int, int], int]] = {
    "idx": lambda lane, by: by,
    "bfly": lambda lane, by: lane ^ by,
    "up": lambda lane, by: lane - by,
    "down": lambda lane, by: lane + by,
}
_VOTES = ("all", "any", "ballot")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a unit gives to the others of its warp: an instruction, and the bits of its sources."""

    one: Instruction
    given: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NamedBarrier:
    """A unit arrives at a barrier of some units of the cube."""

    number: int
    count: int


class Pause:
    """A unit looks at memory that others may change, and lets them go on."""


PAUSE = Pause()
MOST_PAUSES = 500
"""Looks in a row without anything else, behind which nothing can go on."""
Run = Generator[Exchange | NamedBarrier | Pause | None, int, None]
"""Yields None at a barrier of the cube; is sent the results of exchanges."""


class Hang(AssertionError):
    """Units look for ever at memory that no unit changes."""


def is_exchange(one: Instruction) -> bool:
    """Whether the interpreter has the exchange."""
    return one.parts[0] == "sync" and one.parts[1] in (*_WAYS, *_VOTES)


def run_cube(units: Sequence[Run]) -> None:
    """Run all units of a cube, warp by warp from one barrier of the cube to the next."""
    warps = [_Warp(dict(enumerate(units[k : k + WARP]))) for k in range(0, len(units), WARP)]
    pauses = 0
    while any(warp.units for warp in warps):
        if all(warp.is_at_barrier for warp in warps):
            for warp in warps:
                warp.release()
        moved = [warp.step() for warp in warps]
        moved.append(_release(warps))
        pauses = 0 if any(moved) else pauses + 1
        if pauses > MOST_PAUSES:
            raise Hang("units wait for ever")


def _release(warps: Sequence[_Warp]) -> bool:
    """Let units go on from barriers at which as many have arrived as these take."""
    came = Counter(barrier for warp in warps for barrier in warp.waits_at.values())
    full = {barrier for barrier, count in came.items() if count == barrier.count}
    for warp in warps:
        warp.leave(full)
    return bool(full)


class _Warp:
    """The units of a warp by lane, without those that have ended."""

    def __init__(self, units: dict[int, Run]) -> None:
        self.units = units
        self._answers: dict[int, Any] = dict.fromkeys(units)
        self._asked: dict[int, Exchange] = {}
        self._reached: set[int] = set()
        self.waits_at: dict[int, NamedBarrier] = {}
        """By lane, where units wait for some units of the cube."""

    @property
    def is_at_barrier(self) -> bool:
        """Whether all units wait for the cube."""
        return len(self._reached) == len(self.units)

    def release(self) -> None:
        """Let the units go on from a barrier of the cube."""
        self._answers, self._reached = dict.fromkeys(self.units), set()

    def leave(self, full: set[NamedBarrier]) -> None:
        """Let units go on from these barriers of some units."""
        for lane in [lane for lane, barrier in self.waits_at.items() if barrier in full]:
            del self.waits_at[lane]
            self._answers[lane] = None

    def step(self) -> bool:
        """Run each unit up to where it waits; whether any did more than look."""
        answers, self._answers = self._answers, {}
        moved = [self._resume(lane, answer) for lane, answer in answers.items()]
        if self._asked and not self._answers:
            waiting = self._reached or self.waits_at
            assert not waiting, "some units of a warp wait for the cube, some for the warp"
            self._answers, self._asked = dict(_exchanged(self._asked)), {}
            return True
        return any(moved)

    def _resume(self, lane: int, answer: Any) -> bool:
        try:
            given = self.units[lane].send(answer)
        except StopIteration:
            del self.units[lane]
            return True
        if given is None:
            self._reached.add(lane)
        elif isinstance(given, NamedBarrier):
            self.waits_at[lane] = given
        elif isinstance(given, Pause):
            self._answers[lane] = None
            return False
        else:
            self._asked[lane] = given
        return True


def _exchanged(asked: dict[int, Exchange]) -> dict[int, int]:
    """The results of an exchange that all units of a warp that have not ended do alike."""
    kinds = {(exchange.one.name, exchange.one.parts) for exchange in asked.values()}
    assert len(kinds) == 1, "units of a warp at different exchanges"
    ((name, parts),) = kinds
    if name in ("bar", "barrier"):
        return dict.fromkeys(asked, 0)
    masks = {exchange.given[-1] & _ALL for exchange in asked.values()}
    assert masks == {_ALL}, "an exchange of some units of a warp"
    if name == "shfl":
        return {lane: _shuffled(parts[1], lane, asked) for lane in asked}
    votes = [exchange.given[0] & 1 for exchange in asked.values()]
    ballot = sum(vote << lane for lane, vote in zip(asked, votes, strict=True))
    found = {"all": all(votes), "any": any(votes), "ballot": ballot}[parts[1]]
    return dict.fromkeys(asked, int(found))


def _shuffled(way: str, lane: int, asked: dict[int, Exchange]) -> int:
    """The bits of the lane that is asked for, with bit 64 where there is one, else the own ones.

    A lane whose unit has ended gives bits that nobody may rely on.
    """
    own, by, limits = asked[lane].given[:3]
    assert limits in (0, WARP - 1), "segments of a warp"
    source = _WAYS[way](lane, by % WARP)
    if not 0 <= source < WARP:
        return own
    found = asked[source].given[0] if source in asked else 0xDEAD_BEEF
    return found | 1 << 64
