"""`python -m tests.fuzz.child FAMILY START COUNT [DEVICE [UNTIL]]`: seeds in their own process.

Prints a line of JSON before each batch and for each find, so that the parent knows which seeds a
crash belongs to. A batch that fails is run again seed by seed.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.families import Ran

LIMIT = 300
"""Seconds for a batch; one that takes longer hangs, and ends the process."""


@dataclass(frozen=True)
class Chunk:
    """What a child runs."""

    family: str
    start: int
    count: int
    device: str | None = None
    until: float | None = None
    """When to stop, in seconds since 1970."""

    def command(self) -> list[str]:
        """The command that runs it."""
        words = [self.family, str(self.start), str(self.count)]
        if self.device or self.until:
            words += [self.device or "", *([] if self.until is None else [str(self.until)])]
        return [sys.executable, "-m", "tests.fuzz.child", *words]

    def after(self, seed: int) -> Chunk:
        """What is left behind a seed."""
        return Chunk(self.family, seed, self.start + self.count - seed, self.device, self.until)

    def is_over(self) -> bool:
        """Whether there is nothing left to run, or no time."""
        return self.count <= 0 or (self.until is not None and time.time() > self.until)


def run(chunk: Chunk) -> None:
    """Check the seeds of a chunk."""
    from tests.fuzz.families import batches

    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # compilers make many objects, and few of them are cycles
    with _devices(chunk.device):
        for batch in batches(chunk.family, chunk.start, chunk.count):
            if chunk.is_over():
                break
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            _say(begin=batch.start, end=batch.stop)
            _say(**_check(chunk, batch)._asdict())
    faulthandler.cancel_dump_traceback_later()


def _check(chunk: Chunk, batch: Sequence[int]) -> Ran:
    """Check one batch; one that fails is run seed by seed, and says what it found."""
    from tests.fuzz.families import FAMILIES, Ran

    try:
        return FAMILIES[chunk.family].check(batch, chunk.device)
    except Exception as error:
        if len(batch) == 1:
            _say(seed=batch[0], kind=_kind(error), text=f"{error}")
            return Ran(1)
    each = [_check(chunk, [seed]) for seed in batch]
    return Ran(sum(one.ran for one in each), sum(one.lanes for one in each))


def _kind(error: Exception) -> str:
    import cubepy as cp
    from tests.fuzz.differential import Mismatch
    from tests.fuzz.typed.oracle import Wrong

    if isinstance(error, Mismatch | Wrong):
        return "mismatch"
    return "refused" if isinstance(error, cp.Error) else type(error).__name__


def _devices(device: str | None):
    """The devices that run the text of C dialects, where one is asked for."""
    from contextlib import nullcontext

    from tests.compilers.c import text_devices

    return text_devices.registered() if device in text_devices.DEVICES else nullcontext()


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    family, start, count, *device = sys.argv[1:]
    where, when = (*device, "", "")[:2]
    run(Chunk(family, int(start), int(count), where or None, float(when) if when else None))
