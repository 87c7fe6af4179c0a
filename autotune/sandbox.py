"""First runs of candidates on a GPU: in a process of their own, which may hang or lose its context.

A process that has used a GPU cannot be forked to use it again, so this one is started anew. It gets
code and argument blocks, not functions: a notebook's kernels run there as well. One process serves
all searches of this one, until a candidate breaks it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cubepy.array.memory import Memory
from cubepy.cache.codec import artifact_to
from cubepy.ir.types import bool_
from cubepy.jit.ahead import Recorded
from cubepy.record import dataclass

SENT_BYTES = 1 << 20
"""Floats beyond so many bytes are zeros there. Integers are sent: lengths and indices are such."""
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from cubepy.autotune.sandboxed import main; main(sys.argv[1])"
)
OUT_OF_MEMORY = "E504"
PATIENCE_S = 0.1
"""How long an ended process is waited for."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that arrays lie in, from `low` up to `high`; `name`: of what was sent, or empty."""

    low: int
    high: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended: `reason` is empty where it went well."""

    reason: str = ""
    is_late: bool = False
    is_unknown: bool = False
    """It could not be run at all: there was no process, or no memory."""


def _started(device: str) -> subprocess.Popen[bytes] | None:
    """A new process; None where none is to be had."""
    if not sys.executable:  # Python is part of another program
        return None
    path = json.dumps([str(p) for p in sys.path])
    with suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-c", _START, device, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the caller's
        )
    return None


class Sandbox:
    """A process that runs recorded launches on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._process = _started(device)
        self._owner = os.getpid()
        self._buffer = b""
        self._is_ready = self._is_ended = False

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and is this one's."""
        is_ours = self._owner == os.getpid() and not self._is_ended
        return is_ours and self._process is not None and self._process.poll() is None

    def is_ready(self, seconds: float) -> bool:
        """Whether it has its device, after so many seconds at most."""
        if not self._is_ready and self.is_alive:
            self._is_ready = self._read(seconds) is not None
        return self._is_ready and self.is_alive

    def keep(self, name: str, data: bytes) -> None:
        """Send the content of arrays."""
        self._send({"do": "keep", "name": name}, [data])

    def forget(self) -> None:
        """Let it free its memory."""
        self._send({"do": "forget"}, [])

    def run(self, launches: Sequence[Recorded], spans: Sequence[Span], limit_s: float) -> Verdict:
        """Run launches on copies of the spans. A process that gives no answer in time is ended."""
        rows = [
            {
                "artifact": artifact_to(found.artifact),
                "block": found.block,
                "maps": [[m.word, m.address, m.method, m.layout] for m in found.maps],
            }
            for found in launches
        ]
        message = {"do": "run", "launches": rows, "spans": [[s.low, s.high, s.name] for s in spans]}
        self._send(message, [found.artifact.code for found in launches])
        said = self._read(limit_s)
        if said is None:
            ended = self._process and self._process.poll()
            self.end()
            if ended is not None:  # with status 0 it had waited in vain for long, before this run
                return Verdict(f"its process ended with status {ended}", is_unknown=ended == 0)
            return Verdict(f"no answer within {limit_s:.3g} s", is_late=True)
        if said["is_last"]:
            self.end()  # it may take a while to end by itself, and would run nothing meanwhile
        return Verdict(said["error"], is_unknown=said.get("code") == OUT_OF_MEMORY)

    def end(self) -> None:
        """End the process."""
        if self._owner != os.getpid() or self._process is None:
            return
        self._is_ended = True  # it may live on until its driver has stopped a kernel
        with suppress(OSError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # a driver may have to stop a kernel first
            self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Ctrl-C ends the process: half a message, or an answer under way, would be the next's."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def _send(self, message: dict[str, Any], data: Sequence[bytes]) -> None:
        """Send a message; that the process has ended is found by the next read."""
        pipe = self._process and self._process.stdin
        assert pipe is not None
        line = json.dumps({**message, "sizes": [len(d) for d in data]}).encode()
        with self._whole(), suppress(OSError, ValueError):
            pipe.write(line + b"\n")
            for part in data:
                pipe.write(part)
            pipe.flush()

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None where none comes in time, or ever."""
        with self._whole():
            return self._read_line(seconds)

    def _read_line(self, seconds: float) -> dict[str, Any] | None:
        pipe, until = self._process and self._process.stdout, time.monotonic() + seconds
        assert self._process is not None and pipe is not None
        while b"\n" not in self._buffer:
            rest = max(0.0, until - time.monotonic())
            if not select.select([pipe], [], [], rest)[0]:
                return None
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(PATIENCE_S)
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


_free: list[Sandbox] = []
"""Processes that serve no search now."""


def take(device: str) -> Sandbox:
    """A process for a device that serves nobody else, started now if there is none."""
    for found in list(_free):
        with suppress(ValueError):  # another thread took it
            if found.device == device or not found.is_alive:
                _free.remove(found)
                if found.is_alive:
                    return found
                found.end()
    return Sandbox(device)


def give_back(sandbox: Sandbox) -> None:
    """Let others have a process."""
    if not sandbox.is_alive:
        sandbox.end()
        return
    sandbox.forget()
    _free.append(sandbox)


@atexit.register
def end_all() -> None:
    """End all processes that serve no search."""
    while _free:
        _free.pop().end()


def spans_of(
    memories: Iterable[Memory], download: Callable[[int, int, int], None]
) -> tuple[list[Span], dict[str, bytes]]:
    """The bytes of arrays, those that overlap together, and what is to be sent of them; `download`
    copies to an address of the host from one of the device so many bytes."""
    found: list[tuple[int, int, bool]] = []
    for m in sorted((m for m in memories if 0 not in m.shape), key=lambda m: m.extent()):
        low, high = m.extent()
        is_sent = not m.dtype.is_float or m.dtype is bool_
        if found and low < found[-1][1]:
            first, last, was_sent = found.pop()
            low, high, is_sent = first, max(high, last), is_sent or was_sent
        found.append((low, high, is_sent))
    spans: list[Span] = []
    contents: dict[str, bytes] = {}
    left = SENT_BYTES
    for low, high, is_sent in found:
        fits = high - low <= left
        if not (fits or is_sent):
            spans.append(Span(low, high))
            continue
        left -= high - low if fits else 0
        held = ctypes.create_string_buffer(high - low)
        download(ctypes.addressof(held), low, high - low)
        name = f"{low} {high}"
        contents[name] = held.raw
        spans.append(Span(low, high, name))
    return spans, contents


def unknown_spans(
    launches: Sequence[Recorded],
    spans: Sequence[Span],
    find: Callable[[int], tuple[int, int] | None],
) -> list[Span]:
    """The allocations of addresses in launches that are in no span: memory that a function made."""
    found: dict[tuple[int, int], Span] = {}
    for launch in launches:
        slots = enumerate(launch.artifact.slots)
        words = [launch.block[k] for k, slot in slots if slot.kind.is_address]
        for address in (*words, *(m.address for m in launch.maps)):
            known = (*spans, *found.values())
            if any(s.low <= address < max(s.high, s.low + 1) for s in known):
                continue
            extent = find(address)
            if extent is not None:
                found[extent] = Span(*extent)
    return list(found.values())
