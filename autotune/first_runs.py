"""First runs of a search's candidates in a sandbox, on copies of what the arguments hold."""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import inf
from typing import Any

from cubepy.autotune.sandbox import (
    Sandbox,
    Span,
    Verdict,
    give_back,
    spans_of,
    take,
    unknown_spans,
)
from cubepy.autotune.subject import Recording, Subject

LIMIT_S = 0.4
"""What launches that work take at most, with the loading of their code, beside `TIMES` what the
reference took: longer ones win no race."""
TIMES = 10.0


def can_rehearse(device: Any) -> bool:
    """Whether candidates for a device run in a process of their own first."""
    return device.target.kind in ("cuda", "opencl")


class FirstRuns:
    """Runs candidates of one search for the first time. A context."""

    def __init__(self, subject: Subject, device: Any, limit_s: float) -> None:
        """`limit_s`: what a candidate may take; where no driver has to build code first at most
        `LIMIT_S` and `TIMES` as the reference."""
        self._subject, self._device, self._limit = subject, device, limit_s
        self._sandbox = take(device.name)
        self._sent: tuple[Sandbox, list[Span]] | None = None
        self._has_served = self._sandbox.is_ready(0.0)  # if it ends now, it had waited for long
        self.reference_s = 0.0

    def __enter__(self) -> FirstRuns:
        return self

    def __exit__(self, *error: object) -> None:
        give_back(self._sandbox)

    def is_ready(self, seconds: float) -> bool:
        """Whether the process has its device, after so many seconds at most."""
        if self._has_served and not self._sandbox.is_alive:
            self._sandbox = take(self._device.name)
        if self._sandbox.is_ready(seconds):
            self._has_served = True
        elif not self._sandbox.is_alive:
            _warn(self._device.name)
            return False
        return self._sandbox.is_alive and self._sandbox.is_ready(0.0)

    def run(self, recording: Recording, rest_s: float = inf) -> Verdict:
        """Run a candidate; `rest_s`: seconds that are left of the budget. What it does not do in
        these is unknown, not late."""
        spans = self._send(recording.read)
        written = [Span(*m.extent()) for m in recording.written if 0 not in m.shape]
        spans = spans + [s for s in written if not any(_overlap(s, known) for known in spans)]
        find = getattr(self._device, "allocation_at", lambda address: None)
        spans += unknown_spans(recording.launches, spans, find)
        limit = self._limit
        if self._device.target.kind != "opencl":
            limit = min(limit, LIMIT_S + TIMES * self.reference_s)
        found = self._sandbox.run(recording.launches, spans, min(limit, rest_s))
        if found.is_late and rest_s < limit:
            return replace(found, is_late=False, is_unknown=True)
        return found

    def _send(self, memories: Any) -> list[Span]:
        """The spans of the arguments, whose contents are sent to each process once."""
        if self._sent is None or self._sent[0] is not self._sandbox:
            self._subject.restore(False)
            self._device.synchronize()
            spans, contents = spans_of(memories, self._device.download)
            for name, data in contents.items():
                self._sandbox.keep(name, data)
            self._sent = self._sandbox, spans
        return self._sent[1]


_warned: set[str] = set()


def _warn(device: str) -> None:
    """Say once that nothing can be tried on a device."""
    if device not in _warned:
        _warned.add(device)
        text = "no other process can use it, so that candidates that never ran are not tried"
        warnings.warn(f"{device}: {text}", RuntimeWarning, stacklevel=2)


def _overlap(a: Span, b: Span) -> bool:
    return a.low < b.high and b.low < a.high
