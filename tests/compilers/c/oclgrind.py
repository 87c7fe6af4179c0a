"""OpenCL C under Oclgrind, a simulator that reports races, wrong addresses, uninitialised values
and barriers that not all units reach.

Kernels reach it by `configure(device="oclgrind")` and run in a child process, on buffers that end
where the arrays end. A launch that Oclgrind has something to say about raises `Reported`. Its
driver is OpenCL 1.2 without shared virtual memory, for which `runtimes.opencl` passes it by.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from cubepy.artifact import Artifact, Data, ParamKind
from cubepy.ir.types import find_dtype
from cubepy.runtimes.base import DeviceRecord, MemoryUse, OneOrder, Properties
from cubepy.targets import parse_target
from tests.optional import require_package

MOST = 100_000
"""Reports of a child, after which it reports no more: one with any is not used again."""
CHECKS = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_UNIFORM_WRITES": "1",
    "OCLGRIND_UNINITIALIZED": "1",
    "OCLGRIND_NUM_THREADS": "1",
    "OCLGRIND_MAX_ERRORS": f"{MOST}",
    "PYTHONWARNINGS": "ignore",
}
"""Wrong addresses and barriers are always looked at. Units that write one value to one place race
as well."""
CHILD = Path(__file__).with_name("oclgrind_child.py")
SHOWN = 3000
"""Characters of what was reported."""
UNINITIALISED = re.compile("^(?:Uninitialized|Controlflow depends on uninitialized) ")
"""After a fault, units read what the unit that failed did not write; the launch is an error."""
COUNTED = re.compile(r"^\d+ warnings? generated\.\n", re.MULTILINE)
"""`-w` hides the warnings of its compiler, but not their number."""
ALIGNMENT = 64
POISON = 0xA5


class Reported(AssertionError):
    """What Oclgrind says about a launch: how often of each kind, then the first reports."""

    def __init__(self, found: list[str]) -> None:
        kinds = Counter(re.sub(" address 0x.*", "", text.partition("\n")[0]) for text in found)
        heads = [f"{number} x {kind}" for kind, number in kinds.items()]
        super().__init__("\n".join(heads) + "\n\n" + "\n\n".join(found)[:SHOWN])


class Child:
    """A process with Oclgrind's driver, and where its stderr goes."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | CHECKS,
        )
        self.has_driver = self._answer() is True

    def run(self, request: dict[str, Any]) -> Any:
        """What the child answers, or None where it died, and what it said on stderr meanwhile."""
        before = os.fstat(self._log.fileno()).st_size
        answer = self._answer() if self._ask(request) else None
        reported = os.pread(
            self._log.fileno(), os.fstat(self._log.fileno()).st_size - before, before
        )
        return answer, reported.decode(errors="replace")

    def _ask(self, request: dict[str, Any]) -> bool:
        assert self._process.stdin is not None
        try:
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def end(self) -> None:
        """It is not asked again."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            self._process.wait()
            return None


@lru_cache(maxsize=1)
def child() -> Child:
    """The child process; the test is skipped where Oclgrind is absent."""
    require_package("pyopencl")
    return Child()


class Allocation:
    """Memory here that is copied to the simulator for each launch.

    `low` to `high` were uploaded. The simulator's memory ends at `high`, behind which a launch has
    nothing to look for; without an upload nothing in it is initialised.
    """

    def __init__(self, nbytes: int) -> None:
        self._held = (ctypes.c_uint8 * (nbytes + ALIGNMENT))()
        self.nbytes = nbytes
        self.address = -(-ctypes.addressof(self._held) // ALIGNMENT) * ALIGNMENT
        self.low, self.high = nbytes, 0
        ctypes.memset(self.address, POISON, nbytes)

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + self.nbytes

    def upload(self, address: int, host: int, nbytes: int) -> None:
        offset = address - self.address
        self.low, self.high = min(self.low, offset), max(self.high, offset + nbytes)
        ctypes.memmove(address, host, nbytes)

    def contents(self) -> tuple[int, bytes | None]:
        """The size for a launch, and the bytes if there are any yet."""
        if not self.high:
            return self.nbytes, None
        return self.high, ctypes.string_at(self.address, self.high)

    def update(self, held: bytes) -> bool:
        """Take what a launch left; False if anything before the arrays has changed."""
        ctypes.memmove(self.address, held, len(held))
        self.low, self.high = (self.low if self.high else 0), len(held)
        return held[: self.low] == bytes([POISON]) * self.low

    @property
    def is_written(self) -> bool:
        """Whether this is a fault record that a unit has taken."""
        return ctypes.string_at(self.address, 1) != b"\0"


class OclgrindDevice(OneOrder):
    """See `runtimes.base.Device`."""

    uses_host_memory = False
    name = "oclgrind"
    properties = Properties("oclgrind, for tests", 1, 0)
    target = parse_target("opencl")

    def __init__(self) -> None:
        self._alive: WeakSet[Allocation] = WeakSet()

    def allocate(self, nbytes: int) -> Allocation:
        """Memory whose bytes count as uninitialised."""
        found = Allocation(max(nbytes, 1))
        self._alive.add(found)
        return found

    def _holder(self, address: int) -> Allocation:
        return next(a for a in self._alive if a.holds(address))

    def upload(self, address: int, host: int, nbytes: int, queue: int | None = None) -> None:
        """Copy; see `Allocation`."""
        if nbytes:
            self._holder(address).upload(address, host, nbytes)

    def download(self, host: int, address: int, nbytes: int, queue: int | None = None) -> None:
        """Copy."""
        ctypes.memmove(host, address, nbytes)

    def copy(self, target: int, source: int, nbytes: int, queue: int | None = None) -> None:
        """Copy within the memory here."""
        self.upload(target, source, nbytes)

    def synchronize(self, queue: int | None = None) -> None:
        """Launches return when they are done."""

    def fault_record(self) -> DeviceRecord:
        """Zeroed memory."""
        return DeviceRecord(self)  # type: ignore[arg-type]

    def grain(self, count: int, work: int) -> int:
        """Cubes run one after the other."""
        return max(1, count)

    def memory(self) -> MemoryUse:
        """Not reported."""
        return MemoryUse(0, 0)

    def load(self, artifact: Artifact) -> Artifact:
        """The child builds the source at the first launch, and keeps it."""
        return artifact

    def launch(
        self, loaded: Artifact, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Run all cubes in the child; `Reported` where Oclgrind reports anything."""
        if not count:
            return
        words, slots = list(block), loaded.slots
        arguments = Arguments(self._holder)
        for slot, word in zip(slots, words, strict=False):
            arguments.add(slot.kind, slot.dtype, word)
        if loaded.faults:
            arguments.add(Data(), "", words[-1])
        grid = words[len(slots) : len(slots) + 3]
        size = tuple(n * d for n, d in zip(grid, loaded.cube_dim, strict=True))
        request = {"source": loaded.code.decode(), "entry": loaded.entry, "size": size}
        request |= {"cube_dim": loaded.cube_dim, "arguments": arguments.passed}
        found = run(request, arguments.used)
        if loaded.faults and self._holder(words[-1]).is_written:
            found = [text for text in found if not UNINITIALISED.search(text)]
        if found:
            raise Reported(found)


class Arguments:
    """What a launch passes: places in the memory that it uses, and the bytes of numbers."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self.used: list[Allocation] = []
        self.passed: list[Any] = []

    def add(self, kind: ParamKind, dtype: str, word: int) -> None:
        """One word of the block; the address of an empty array is 0."""
        if not kind.is_address:
            found = find_dtype(dtype)
            size = 8 if found is None else found.itemsize
            self.passed.append((word & (256**size - 1)).to_bytes(size, "little"))
        else:
            self.passed.append(self._place(word) if word else None)

    def _place(self, address: int) -> tuple[int, int]:
        allocation = self._holder(address)
        if allocation not in self.used:
            self.used.append(allocation)
        return self.used.index(allocation), address - allocation.address


def run(request: dict[str, Any], used: list[Allocation]) -> list[str]:
    """Launch in the child, update the memory, and give what is reported."""
    buffers = [allocation.contents() for allocation in used]
    answer, reported = child().run(request | {"buffers": buffers})
    reported = COUNTED.sub("", reported)
    if reported or answer is None:
        child().end()
        child.cache_clear()
    found = reports(reported)
    if not isinstance(answer, list):
        return [*found, answer or "Oclgrind ended"]
    fine = [allocation.update(held) for allocation, held in zip(used, answer, strict=True)]
    return found if all(fine) else [*found, "a unit wrote before its array"]


def reports(text: str) -> list[str]:
    """What was reported, but for loads of atomics; all of it where the child stopped reporting."""
    every = [text.strip() for text in re.split(r"\n(?=\n\S)", text) if text.strip()]
    return [text for text in every if len(every) >= MOST or not is_atomic_load(text)]


def is_atomic_load(report: str) -> bool:
    """Whether an atomic load and an atomic operation are taken for a race.

    OpenCL C 1.2 has no atomic load: it is written as a volatile one, and nothing else is, which
    Oclgrind takes for any other load.
    """
    plain = re.findall(r" (?:load|store) .*", report)
    atomic = re.search(r" call .*@_Z\d+atom(?:ic)?_", report)
    is_load = len(plain) == 1 and "load volatile " in plain[0]
    return report.startswith("Read-write data race") and is_load and atomic is not None


def require() -> None:
    """Skip the test where there is no such driver; see `tests.optional`."""
    if not child().has_driver:
        absent = "package absent: oclgrind"
        if os.environ.get("CUBEPY_REQUIRE_OPTIONAL") == "1":
            pytest.fail(f"{absent}, and CUBEPY_REQUIRE_OPTIONAL=1 requires it", pytrace=False)
        pytest.skip(absent)
