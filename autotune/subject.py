"""What is tuned: candidates that can be run on copies of the arguments."""

from __future__ import annotations

from typing import Any, Protocol

from cubepy.array.memory import Memory
from cubepy.jit.ahead import Recorded
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Recording:
    """What a candidate would launch, on these arrays. `read`: those whose content counts."""

    launches: tuple[Recorded, ...]
    read: tuple[Memory, ...]
    written: tuple[Memory, ...] = ()


class Subject(Protocol):
    """Candidates by number, 0 being the preferred one, on copies of one call's arguments.

    `texts`: each configuration's canonical text. `reference`: the candidate that the others are
    compared with, to `rtol`. Nothing of it may write to memory of the caller.
    """

    texts: list[str]
    reference: int
    rtol: float | None

    def restore(self, poisoned: bool) -> None:
        """Give the copies what the arguments hold; NaN in place of that, where it does not count
        and `poisoned` asks for it."""
        ...

    def copy_arguments(self) -> None:
        """Make what `make` must not: copies of arguments on a device."""
        ...

    def make(self, k: int, predicts: bool) -> float | None:
        """Compile candidate `k` and keep its code on disk; load and launch nothing. Gives the
        seconds that the model predicts for it, None where it cannot; `predicts`: also of code that
        was on disk, whose kernel is made again for that."""
        ...

    def recorded(self, k: int, only_kept: bool) -> Recording:
        """Compile candidate `k`; load and launch nothing. `only_kept`: `NotKept` where its code is
        not on disk."""
        ...

    def run(self, k: int) -> None:
        """Launch candidate `k` once, compiling it first where that was not done, and wait."""
        ...

    def outputs(self) -> list[Any]:
        """What the copies of arrays that are written hold, and what the last run returned, as
        arrays that do not change: NumPy's, or torch's on a device."""
        ...

    def learn(self) -> None:
        """Find out, by the reference, what is written and whether its content before counts."""
        ...

    def flush(self) -> None:
        """Drive the arguments out of the caches."""
        ...

    def seconds(self, k: int, count: int) -> float:
        """The time that `count` launches of a candidate take: the device's where it has a clock."""
        ...

    def bound(self) -> float:
        """Seconds that no candidate can be faster than; 0 where that is not known."""
        ...
