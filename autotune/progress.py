"""One line on a terminal that says how far a search is."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from cubepy.autotune.trials import UNKNOWN, Trials

WIDTH = 24
EVERY_S = 0.1
PATIENCE_S = 0.3
"""Searches that are shorter show nothing."""


class Progress:
    """Shows a search of `name` that began now; nothing where `stream` is no terminal."""

    def __init__(self, name: str, budget_s: float, stream: TextIO | None = None) -> None:
        self._name, self._budget = name, budget_s
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = bool(getattr(self._stream, "isatty", lambda: False)())
        self._began = self._last = time.monotonic()
        self._width = 0

    def show(self, trials: Trials) -> None:
        """Draw the line anew, ten times a second at most."""
        now = time.monotonic()
        if not self._is_shown or now - self._began < PATIENCE_S or now - self._last < EVERY_S:
            return
        self._last = now
        text = self._text(trials, now - self._began)
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def end(self) -> None:
        """Remove the line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()

    def _text(self, trials: Trials, elapsed: float) -> str:
        done = min(WIDTH, int(WIDTH * elapsed / max(self._budget, 1e-9)))
        bar = "#" * done + "." * (WIDTH - done)
        tried = sum(1 for s in trials.status if s != UNKNOWN)
        count = f"{tried} of {len(trials.status)} tried"
        times = {k: trials.seconds(k) for k in range(len(trials.texts))}
        found = [s for s in times.values() if s is not None]
        first = times.get(0)
        gain = f", best {first / min(found):.2f} x the default" if first and found else ""
        return f"tuning {self._name} [{bar}] {count}{gain}"
