"""`python -m tests.mutants [--count 60] [--seed 1]`: plant compiler bugs, see who is caught.

Each mutant runs in a child process: first the tests that are likeliest to notice, then generated
kernels, interpreter against LLVM; the first failure ends it. A compiler that refuses, crashes or
hangs is caught too. Survivors are listed; 95 % must be caught. A child without any bug runs as
well, and must find nothing.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.mutants.edits import EDITS, killers

ENOUGH = 0.95
LIMIT = 400
"""Seconds for a mutant; one that takes longer hangs."""
CONTROL = "control"


@dataclass(frozen=True)
class Trial:
    """A mutant, how it was caught ("" if it was not), and the seconds that took."""

    name: str
    caught: str
    seconds: float


def main() -> int:
    """Sample mutants and report; 0 if enough are caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="the part of a name, of all mutants")
    parser.add_argument("--hunt", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hunt is not None:
        return hunt(options.hunt, options.kernels)
    names = list(_names())
    chosen = random.Random(options.seed).sample(names, min(options.count, len(names)))
    if options.only:
        chosen = [name for name in names if options.only in name]
    with ThreadPoolExecutor(options.jobs) as pool:
        trials = list(pool.map(lambda name: attempt(name, options.kernels), [CONTROL, *chosen]))
    return report(trials[0], trials[1:], len(names))


def _names() -> list[str]:
    from tests.mutants.catalogue import all_mutants

    return [mutant.name for mutant in all_mutants()] + [edit.name for edit in EDITS]


def attempt(name: str, kernels: int) -> Trial:
    """Let a child process hunt for a mutant."""
    command = [sys.executable, "-m", "tests.mutants", "--hunt", name, "--kernels", str(kernels)]
    begin = time.monotonic()
    try:
        child = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        last = (child.stdout.strip().splitlines() or ["it crashed"])[-1]
        caught = last if child.returncode else ""
    except subprocess.TimeoutExpired:
        caught = "it hangs"
    trial = Trial(name, caught, time.monotonic() - begin)
    print(f"{trial.seconds:4.0f} s  {name}: {caught[:80] or 'SURVIVED'}", flush=True)
    return trial


def report(control: Trial, trials: list[Trial], total: int) -> int:
    """Print the survivors and the score."""
    from tests.mutants.catalogue import EQUIVALENT

    caught = [trial for trial in trials if trial.caught]
    survived = [trial.name for trial in trials if not trial.caught]
    for name in survived:
        print(f"survived: {name}{_argued(EQUIVALENT.get(name))}")
    equivalent = [name for name in survived if name in EQUIVALENT]
    counted = len(trials) - len(equivalent)
    print(
        f"{len(caught)} of {counted} mutants caught ({total} exist, {len(equivalent)} equivalent)"
    )
    if control.caught:
        print(f"the suite fails without a mutant: {control.caught}")
        return 1
    return 0 if len(caught) >= ENOUGH * counted else 1


def _argued(reason: str | None) -> str:
    return f" (equivalent: {reason})" if reason else ""


def hunt(name: str, kernels: int) -> int:
    """Plant a mutant here; 1 as soon as something notices it."""
    planted = _plant(name)
    for arguments in killers(planted):
        if _fails(arguments):
            print(f"{' '.join(arguments)}")
            return 1
    return _fuzz(kernels)


def _plant(name: str) -> str:
    """Plant the mutant of a name; gives what chooses its killers."""
    for edit in EDITS:
        if edit.name == name:
            edit.plant()
            return edit.module
    if name != CONTROL:
        from tests.mutants.catalogue import all_mutants

        (mutant,) = [mutant for mutant in all_mutants() if mutant.name == name]
        mutant.plant()
    return name


def _fails(arguments: list[str]) -> bool:
    import pytest

    plain = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:warnings"]
    return pytest.main([*plain, *arguments]) != 0


def _fuzz(kernels: int) -> int:
    from tests.fuzz.differential import check, generate
    from tests.fuzz.typed import oracle

    for seed in range(kernels):
        try:
            check(generate(seed), seed, (0,))
            if seed % oracle.BATCH == 0:
                oracle.check(range(seed, seed + oracle.BATCH), ("interpreter", "cpu"))
        except Exception as error:
            print(f"seed {seed}: {str(error).splitlines()[0] if str(error) else error!r}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
