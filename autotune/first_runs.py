"""First runs of a search's candidates in a sandbox, on copies of what the arguments hold."""

from __future__ import annotations

from typing import Any

from cubepy.autotune.sandbox import Sandbox, Span, Verdict, sandbox_of, spans_of, unknown_spans
from cubepy.autotune.subject import Subject

LIMIT_S = 0.4
"""What launches that work take at most, with the loading of their code, beside `TIMES` what the
reference took: longer ones win no race."""
TIMES = 10.0


def can_rehearse(device: Any) -> bool:
    """Whether candidates for a device run in a process of their own first."""
    return device.target.kind == "cuda"


class FirstRuns:
    """Runs candidates of one search for the first time. A context."""

    def __init__(self, subject: Subject, device: Any, limit_s: float) -> None:
        """`limit_s`: what a candidate may take; at most `LIMIT_S` and `TIMES` as the reference."""
        self._subject, self._device, self._limit = subject, device, limit_s
        self._sandbox = sandbox_of(device.name)
        self._sent: tuple[Sandbox, list[Span]] | None = None
        self.reference_s = 0.0

    def __enter__(self) -> FirstRuns:
        return self

    def __exit__(self, *error: object) -> None:
        self._sandbox.forget()

    def is_ready(self, seconds: float) -> bool:
        """Whether the process has its device, after so many seconds at most."""
        if not self._sandbox.is_alive:
            self._sandbox = sandbox_of(self._device.name)
        return self._sandbox.is_ready(seconds)

    def run(self, k: int) -> Verdict:
        """Run a candidate. Raises what its function raises."""
        recording = self._subject.recorded(k)
        spans = self._send(recording.read)
        written = [Span(*m.extent()) for m in recording.written if 0 not in m.shape]
        spans = spans + [s for s in written if not any(_overlap(s, known) for known in spans)]
        find = getattr(self._device, "allocation_at", lambda address: None)
        spans += unknown_spans(recording.launches, spans, find)
        limit = min(self._limit, LIMIT_S + TIMES * self.reference_s)
        return self._sandbox.run(recording.launches, spans, limit)

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


def _overlap(a: Span, b: Span) -> bool:
    return a.low < b.high and b.low < a.high
