"""The soak: `python -m tests.fuzz --count 50000 [--start N] [--jobs J] [--limit SECONDS]
[--device cuda:0]`.

Kernels of all families (`--family` for one) run in child processes, LLVM and the interpreter
against each other and against a model, or the named device; `--family flow --device ptx` runs what
NVVM makes of CUDA C, without a GPU. A mismatch, an error and a crash of a child are finds; each is
printed once with its family and seed, and the soak goes on. With `--seed` only one kernel is run,
in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.child import Chunk, run

CHUNK = 240
"""Seeds of a child; so the memory of compiled code stays bounded."""
REPORT_EVERY = 1000
"""Kernels between two lines that say how far a soak is."""
SHOWN, EXCERPT = 40, 5000
"""Finds that are printed in full, and characters of each."""


@dataclass
class Tally:
    """What a soak found so far."""

    ran: Counter[str] = field(default_factory=Counter[str])
    lanes: int = 0
    """Kernels of the family of that name whose units did become lanes."""
    finds: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])

    def add(self, family: str, find: dict[str, Any]) -> None:
        """Count a find, and print it."""
        self.finds.append((family, find["seed"], find["kind"]))
        if len(self.finds) <= SHOWN:
            print(f"{family} {find['seed']}: {find['kind']}: {find['text'][:EXCERPT]}", flush=True)


def main() -> int:
    """Run seeds start..start+count; 0 if nothing is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--start", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, help="seconds after which nothing is begun")
    parser.add_argument("--device")
    families = ("typed", "flow", "barriers", "wide", "lanes", "classic")
    parser.add_argument("--family", choices=families)
    parser.add_argument("--seed", type=int, help="run one kernel of --family in this process")
    options = parser.parse_args()
    if options.seed is not None:
        run(Chunk(options.family or "typed", options.seed, 1, options.device))
        return 0
    return soak(options)


def soak(options: argparse.Namespace) -> int:
    """All chunks, `jobs` at a time, and a summary."""
    began, tally, reported = time.monotonic(), Tally(), 0
    until = None if options.limit is None else time.time() + options.limit
    chunks = list(_chunks(options.start, options.count, options.family, options.device, until))
    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(lambda chunk: child(chunk, tally), chunks):
            if sum(tally.ran.values()) - reported >= REPORT_EVERY:
                reported = sum(tally.ran.values())
                words = f"{reported} kernels, {len(tally.finds)} finds"
                print(f"{words}, {time.monotonic() - began:.0f} s", flush=True)
    by_family = ", ".join(f"{n} {family}" for family, n in tally.ran.items())
    kinds = Counter(kind for _, _, kind in tally.finds)
    if tally.ran["lanes"]:
        print(f"units became lanes in {tally.lanes} of {tally.ran['lanes']} kernels of `lanes`")
    print(
        f"{sum(tally.ran.values())} of {options.count} kernels ran from seed {options.start} "
        f"({by_family}) in {time.monotonic() - began:.0f} s: {len(tally.finds)} finds "
        f"{dict(kinds) if kinds else ''}"
    )
    for family, seed, kind in tally.finds:
        print(f"  {family} {seed}: {kind}")
    return 1 if tally.finds else 0


def _chunks(
    start: int, count: int, only: str | None, device: str | None, until: float | None = None
) -> Iterator[Chunk]:
    """The seeds of each family by its share, so mixed that each minute has some of all."""
    from tests.fuzz.families import FAMILIES

    names = [only] if only else list(FAMILIES)
    whole = sum(FAMILIES[name].share for name in names)
    counts = {name: count * FAMILIES[name].share // whole for name in names}
    counts[names[0]] += count - sum(counts.values())
    made = [
        (k / max(n, 1), Chunk(name, start + k, min(CHUNK, n - k), device, until))
        for name, n in counts.items()
        for k in range(0, n, CHUNK)
    ]
    yield from (chunk for _, chunk in sorted(made, key=lambda pair: pair[0]))


def child(chunk: Chunk, tally: Tally) -> None:
    """Run a chunk in processes of its own: a new one behind each crash."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    while not chunk.is_over():  # byte code is kept, or each child compiles the product anew
        command = chunk.command()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        begun = range(chunk.start, chunk.start)
        for line in done.stdout.splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            tally.ran[chunk.family] += said.get("ran", 0)
            tally.lanes += said.get("lanes", 0)
            if "begin" in said:
                begun = range(said["begin"], said["end"])
            elif "seed" in said:
                tally.add(chunk.family, said)
        if done.returncode == 0:
            return
        chunk = _crashed(chunk, begun, done, tally)


def _crashed(chunk: Chunk, begun: range, done: Any, tally: Tally) -> Chunk:
    """Find the seeds of a batch that ended its process; what is left of the chunk."""
    if len(begun) > 1:
        for seed in begun:
            child(Chunk(chunk.family, seed, 1, chunk.device, chunk.until), tally)
    else:
        seed = begun.start
        text = f"exit status {done.returncode}: {done.stderr[-1500:]}"
        tally.add(chunk.family, {"seed": seed, "kind": "crash", "text": text})
        tally.ran[chunk.family] += 1
    return chunk.after(max(begun.stop, chunk.start + 1))


if __name__ == "__main__":
    sys.exit(main())
