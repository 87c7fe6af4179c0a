"""A clock that only candidates move, and candidates that need no device."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.autotune.subject import Recording


class FakeClock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeSubject:
    """Candidates that take `seconds` for a run and `compile_s` before the first one.

    `noise`: the relative spread of a sample; `wrong`: those that compute something else; `actions`:
    what some do in their first run.
    """

    reference: int = 0
    rtol: float | None = None

    def __init__(
        self,
        seconds: Sequence[float],
        clock: FakeClock | None = None,
        compile_s: float = 0.1,
        noise: float = 0.0,
        wrong: Sequence[int] = (),
        actions: dict[int, Callable[[], Any]] | None = None,
        seed: int = 0,
    ) -> None:
        self.texts = [f"{k}" for k in range(len(seconds))]
        self.clock = FakeClock() if clock is None else clock
        self.runs: list[int] = []
        self._seconds, self._compile_s, self._noise = seconds, compile_s, noise
        self._wrong, self._actions = wrong, actions or {}
        self._compiled: set[int] = set()
        self._random = random.Random(seed)
        self._out = np.zeros(4)

    def restore(self, poisoned: bool) -> None:
        self._out[...] = np.nan if poisoned else 0

    def copy_arguments(self) -> None:
        pass

    def make(self, k: int, predicts: bool) -> None:
        self._actions.get(k, lambda: None)()

    def recorded(self, k: int, only_kept: bool) -> Recording:
        return Recording((), ())

    def run(self, k: int) -> None:
        self.runs.append(k)
        if k not in self._compiled:
            self._compiled.add(k)
            self.clock.now += self._compile_s
            self._actions.get(k, lambda: None)()
        self.clock.now += self._seconds[k]
        self._out[...] = 2 if k in self._wrong else 1

    def outputs(self) -> list[np.ndarray]:
        return [self._out.copy()]

    def learn(self) -> None:
        self.run(self.reference)

    def flush(self) -> None:
        pass

    def seconds(self, k: int, count: int) -> float:
        self.run(k)
        spread = 1 + self._noise * self._random.random()
        took = self._seconds[k] * spread * count
        self.clock.now += max(0.0, took - self._seconds[k])
        return took

    def bound(self) -> float:
        return 0.0
