"""The subject of a tuned function: its configurations, run on copies of one call's arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.autotune.compare import same_bits
from cubepy.autotune.measure import Clock, Timer
from cubepy.autotune.predict import predicted
from cubepy.autotune.scratch import Scratch, arrays_within, contents, owns_memory, poison
from cubepy.autotune.subject import Recording
from cubepy.config import get, settings
from cubepy.jit.ahead import compiling_ahead
from cubepy.jit.observe import observing
from cubepy.lazy import cached_property

Call = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
"""Runs a function on arguments with a configuration."""


class CallCandidates:
    """See `subject.Subject`. Copies are made when they are first needed, in the child."""

    def __init__(
        self,
        call: Call,
        configs: Sequence[Any],
        texts: Sequence[str],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        reference: int,
        rtol: float | None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.texts, self.reference, self.rtol = list(texts), reference, rtol
        self._call, self._configs, self._arguments = call, configs, arguments
        self._clock = clock
        self._returned: list[Any] = []
        self._kept: list[Any] = []

    @cached_property
    def _scratch(self) -> Scratch:
        return Scratch(*self._arguments)

    @cached_property
    def _timer(self) -> Timer:
        return Timer(self._scratch.device, self._scratch.has_torch_tensors, self._clock)

    def restore(self, poisoned: bool) -> None:
        self._scratch.restore(poisoned)

    def copy_arguments(self) -> None:
        _ = self._scratch

    def make(self, k: int, predicts: bool) -> float | None:
        with compiling_ahead(predicts) as made, settings(opt_level=get("opt_level")):
            self._launch(k)
        return predicted(self._scratch.device, made, self._scratch.bytes())

    def recorded(self, k: int, only_kept: bool) -> Recording:
        scratch = self._scratch
        with compiling_ahead(False, only_kept) as made, settings(opt_level=get("opt_level")):
            self._launch(k)
        return Recording(tuple(made.launches), tuple(scratch.memories()))

    def run(self, k: int) -> None:
        self._returned = []  # dies before others are made
        self._returned = arrays_within(self._launch(k))
        self._timer.wait()

    def _launch(self, k: int) -> Any:
        return self._call(self._scratch.args, self._scratch.kwargs, self._configs[k])

    def outputs(self) -> list[Any]:
        """What the copies of arguments hold, then what the last run returned."""
        found = self._scratch.contents(self._scratch.keys())
        found += [contents(x) for x in self._returned]
        self._spoil()
        return found

    def _spoil(self) -> None:
        """Leave no result in memory that the next candidate may be given: what the reference
        returned is kept, and what others made for themselves is overwritten."""
        if not self._kept:
            self._kept = self._returned
        for x in self._returned:
            if owns_memory(x) and not any(x is kept for kept in self._kept):
                poison(x)

    def learn(self) -> None:
        """Run the reference twice, the second time with NaN in what it writes: an array that it
        writes alike counts by what a candidate stores alone, so it holds NaN from then on."""
        scratch = self._scratch
        ranges: list[tuple[int, int]] = []
        with observing(ranges.append), settings(opt_level=get("opt_level")):
            self.run(self.reference)
        touched = scratch.keys_within(ranges)
        keys = scratch.keys()
        plain = scratch.contents(keys)
        scratch.restore()
        for key in touched:
            scratch.poison(key)
        self.run(self.reference)
        again = scratch.contents(keys)
        pairs = zip(keys, plain, again, strict=True)
        scratch.poisoned = {k for k, a, b in pairs if k in touched and same_bits(a, b)}

    def flush(self) -> None:
        self._timer.flush()

    def seconds(self, k: int, count: int) -> float:
        return self._timer.seconds(lambda: self._launch(k), count)

    def bound(self) -> float:
        return 0.0
