"""Warps: units that exchange registers, and wait for each other and for all of the cube."""

from __future__ import annotations

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


Run = Generator[Exchange | None, int, None]
"""Yields None at a barrier of the cube; is sent the results of exchanges."""


def is_exchange(one: Instruction) -> bool:
    """Whether the interpreter has the exchange."""
    return one.parts[0] == "sync" and one.parts[1] in (*_WAYS, *_VOTES)


def run_cube(units: Sequence[Run]) -> None:
    """Run all units of a cube, warp by warp from one barrier of the cube to the next."""
    warps = [dict(enumerate(units[k : k + WARP])) for k in range(0, len(units), WARP)]
    while any(warps):
        warps = [_to_barrier(warp) for warp in warps]


def _to_barrier(warp: dict[int, Run]) -> dict[int, Run]:
    """The units of a warp that reach the next barrier of the cube, by lane; the rest has ended."""
    answers: dict[int, Any] = dict.fromkeys(warp)
    reached: dict[int, Run] = {}
    while answers:
        asked: dict[int, Exchange] = {}
        for lane, answer in answers.items():
            try:
                exchange = warp[lane].send(answer)
            except StopIteration:
                continue
            if exchange is None:
                reached[lane] = warp[lane]
            else:
                asked[lane] = exchange
        assert not (asked and reached), "some units of a warp wait for the cube, some for the warp"
        answers = dict(_exchanged(asked)) if asked else {}
    return reached


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
