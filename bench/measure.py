"""Interleaved, paired timing that survives a shared machine.

Contenders take turns, round by round. A sample during which any thread of this process waited for
a core for more than 2 % of the time is dropped, and ratios are medians over the rounds in which
both sides were undisturbed. Cost of one sample: a pause in which the spinning workers of the one
before fall asleep, an untimed call that wakes this one's, then a burst of timed calls.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
DISTURBED = 0.02
WARM_BELOW = 0.02  # seconds; a longer call pays for waking its workers without our noticing


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to sample: `rounds` undisturbed rounds, but at most `limit` seconds, if `least`
    rounds were taken by then. A burst of calls lasts `burst` seconds, a pause `pause`."""

    rounds: int = 25
    limit: float = 15.0
    least: int = 5
    burst: float = 0.004
    pause: float = 0.01


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one call, and the share of the time that threads waited for a core."""

    seconds: float
    waited: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nobody else disturbed it."""
        return self.waited <= DISTURBED


@dataclass(frozen=True, slots=True)
class Machinery:
    """Where time and disturbance come from; tests put fakes here. Nanoseconds and seconds."""

    clock: Callable[[], int] = time.perf_counter_ns
    waiting: Callable[[], int] = field(default_factory=lambda: read_waiting)
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Samples:
    """What was measured: for each contender one sample per round."""

    rounds: dict[str, list[Sample]]

    @property
    def taken(self) -> int:
        """Rounds, disturbed ones too."""
        return len(next(iter(self.rounds.values()), []))

    def clean(self, *names: str) -> list[int]:
        """Rounds in which none of `names` was disturbed."""
        lists = [self.rounds[name] for name in names]
        return [k for k in range(self.taken) if all(each[k].is_clean for each in lists)]

    def kept(self, *names: str) -> list[int]:
        """The clean rounds; where they are fewer than 3, the quarter that was disturbed least."""
        if not self.is_noisy(*names):
            return self.clean(*names)
        worst = [max(self.rounds[name][k].waited for name in names) for k in range(self.taken)]
        order = sorted(range(self.taken), key=worst.__getitem__)
        return sorted(order[: max(3, self.taken // 4)])

    def is_noisy(self, *names: str) -> bool:
        """Whether `kept` had to keep disturbed rounds."""
        return len(self.clean(*names)) < min(3, self.taken)

    def seconds(self, name: str) -> list[float]:
        """The kept times of one call."""
        return [self.rounds[name][k].seconds for k in self.kept(name)]

    def median(self, name: str) -> float:
        """Median seconds of a call."""
        return statistics.median(self.seconds(name))

    def spread(self, name: str) -> float:
        """Median absolute deviation as a share of the median."""
        kept, middle = self.seconds(name), self.median(name)
        return statistics.median(abs(s - middle) for s in kept) / middle

    def ratio(self, name: str, over: str) -> float:
        """Median over the rounds of `over`'s time by `name`'s: how many times `name` is faster."""
        mine, theirs = self.rounds[name], self.rounds[over]
        return statistics.median(theirs[k].seconds / mine[k].seconds for k in self.kept(name, over))

    def fastest(self, names: tuple[str, ...]) -> str:
        """The one of `names` with the lowest median."""
        return min(names, key=self.median)


def measure(calls: Mapping[str, Call], plan: Plan, machinery: Machinery | None = None) -> Samples:
    """Sample all `calls` in turn. A call that returns a `Sample` has measured itself."""
    machinery = machinery or Machinery()
    with _collected():
        bursts = {name: _find_burst(call, plan, machinery) for name, call in calls.items()}
        samples = Samples({name: [] for name in calls})
        begin = machinery.clock()
        while not _is_enough(samples, plan, (machinery.clock() - begin) / 1e9):
            for name in _turn(list(calls), samples.taken):
                sample = _sample(calls[name], bursts[name], plan, machinery)
                samples.rounds[name].append(sample)
    return samples


def read_waiting() -> int:
    """Nanoseconds that the threads of this process waited for a core so far (Linux; else 0)."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the thread has ended
    return total


@contextmanager
def _collected() -> Iterator[None]:
    """Without the garbage collector, whose runs belong to nobody."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Burst:
    """The timed calls of a sample, 0 where it measures itself; and whether one comes before."""

    calls: int
    is_warmed: bool


def _find_burst(call: Call, plan: Plan, machinery: Machinery) -> _Burst:
    if isinstance(call(), Sample):  # the first call compiles
        return _Burst(0, False)
    seconds = _time(call, 1, machinery)
    if seconds < plan.burst:
        seconds = min(seconds, _time(call, 10, machinery))
    return _Burst(max(1, math.ceil(plan.burst / max(seconds, 1e-9))), seconds < WARM_BELOW)


def _time(call: Call, times: int, machinery: Machinery) -> float:
    """Seconds of one call, from a run of `times`."""
    trips = range(times)
    begin = machinery.clock()
    for _ in trips:
        call()
    return (machinery.clock() - begin) / times / 1e9


def _sample(call: Call, burst: _Burst, plan: Plan, machinery: Machinery) -> Sample:
    machinery.sleep(plan.pause)
    if burst.calls == 0:
        return call()
    if burst.is_warmed:
        call()
    before, begin = machinery.waiting(), machinery.clock()
    seconds = _time(call, burst.calls, machinery)
    span, waited = machinery.clock() - begin, machinery.waiting() - before
    return Sample(seconds, waited / max(span, 1))


def _turn(names: list[str], number: int) -> list[str]:
    """The order of a round: it rotates, so that nobody always follows the same neighbour's."""
    start = number % len(names)
    order = names[start:] + names[:start]
    return order if number % 2 else order[::-1]


def _is_enough(samples: Samples, plan: Plan, elapsed: float) -> bool:
    if samples.taken < min(plan.least, plan.rounds):
        return False
    if elapsed >= plan.limit:
        return True
    names = tuple(samples.rounds)
    return samples.taken >= plan.rounds and len(samples.clean(*names)) >= plan.rounds
