"""Interleaved, paired timing that survives a shared machine.

Contenders take turns, round by round, in an order that is new for each round. A turn is a pause in
which the spinning workers of the one before fall asleep, then untimed calls until the machine is in
the state that lasts (clocks and memory run at other speeds after a rest: we saw copies go from 52
to 91 GB/s after 0.2 s of copying), then a few bursts of timed calls. A burst during which any
thread of this process waited for a core for more than 2 % of the time is dropped. Ratios are
medians over the rounds in which both sides were undisturbed.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
DISTURBED = 0.02


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to sample: `rounds` undisturbed rounds, but at most `limit` seconds, if `least`
    rounds were taken by then. A turn is a pause, `warm` seconds of untimed calls, `bursts` timed
    bursts of `burst` seconds each."""

    rounds: int = 15
    limit: float = 25.0
    least: int = 4
    pause: float = 0.01
    warm: float = 0.25
    bursts: int = 5
    burst: float = 0.005


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one call in a turn, and the share of the time that threads waited for a core."""

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
    machinery, shuffle = machinery or Machinery(), random.Random(0).sample
    with _collected():
        turns = {name: _plan_turn(call, plan, machinery) for name, call in calls.items()}
        samples = Samples({name: [] for name in calls})
        begin = machinery.clock()
        while not _is_enough(samples, plan, (machinery.clock() - begin) / 1e9):
            for name in shuffle(list(calls), len(calls)):
                sample = _sample(calls[name], turns[name], plan, machinery)
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
class _Turn:
    """Untimed calls, then bursts of timed calls; no bursts where a call measures itself."""

    warm: int = 0
    bursts: int = 0
    calls: int = 0


def _plan_turn(call: Call, plan: Plan, machinery: Machinery) -> _Turn:
    """A call that is longer than the warming gets one burst, of itself."""
    if isinstance(call(), Sample):  # the first call compiles
        return _Turn()
    seconds = min(_time(call, 1, machinery) for _ in range(2))  # the second one may compile too
    if seconds < plan.burst:
        seconds = min(seconds, _time(call, 10, machinery))
    seconds = max(seconds, 1e-9)
    bursts = plan.bursts if seconds < plan.warm else 1
    return _Turn(int(plan.warm / seconds), bursts, math.ceil(plan.burst / seconds))


def _time(call: Call, times: int, machinery: Machinery) -> float:
    """Seconds of one call, from a run of `times`."""
    trips = range(times)
    begin = machinery.clock()
    for _ in trips:
        call()
    return (machinery.clock() - begin) / times / 1e9


def _sample(call: Call, turn: _Turn, plan: Plan, machinery: Machinery) -> Sample:
    machinery.sleep(plan.pause)
    if turn.bursts == 0:
        return call()
    for _ in range(turn.warm):
        call()
    return summarise([_time_burst(call, turn.calls, machinery) for _ in range(turn.bursts)])


def _time_burst(call: Call, calls: int, machinery: Machinery) -> Sample:
    before, begin = machinery.waiting(), machinery.clock()
    seconds = _time(call, calls, machinery)
    span, waited = machinery.clock() - begin, machinery.waiting() - before
    return Sample(seconds, waited / max(span, 1))


def summarise(bursts: list[Sample]) -> Sample:
    """The median of the undisturbed bursts; of the least disturbed one if there are none."""
    kept = [b for b in bursts if b.is_clean] or [min(bursts, key=lambda b: b.waited)]
    return Sample(statistics.median(b.seconds for b in kept), max(b.waited for b in kept))


def _is_enough(samples: Samples, plan: Plan, elapsed: float) -> bool:
    if samples.taken < min(plan.least, plan.rounds):
        return False
    if elapsed >= plan.limit:
        return True
    names = tuple(samples.rounds)
    return samples.taken >= plan.rounds and len(samples.clean(*names)) >= plan.rounds
