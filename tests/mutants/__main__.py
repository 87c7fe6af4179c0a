"""`python -m tests.mutants [--count 60] [--seed 1]`: plant compiler bugs, see who is caught.

Each mutant runs in a child process over generated kernels, interpreter against LLVM; it is caught
when one differs, or the compiler itself refuses. Survivors are listed; 95 % must be caught.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.catalogue import all_mutants

ENOUGH = 0.95


def main() -> int:
    """Sample mutants and report; 0 if enough are caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        return hunt(options.only, options.kernels)
    total = len(all_mutants())
    chosen = random.Random(options.seed).sample(range(total), min(options.count, total))
    with ThreadPoolExecutor(options.jobs) as pool:
        caught = list(pool.map(lambda k: is_caught(k, options.kernels), chosen))
    return report(chosen, caught, total)


def report(chosen: list[int], caught: list[bool], total: int) -> int:
    """Print the score and the survivors."""
    mutants = all_mutants()
    for number, was_caught in zip(chosen, caught, strict=True):
        if not was_caught:
            print(f"survived: {mutants[number].name}")
    print(f"{sum(caught)} of {len(chosen)} mutants caught ({total} exist)")
    return 0 if sum(caught) >= ENOUGH * len(chosen) else 1


def is_caught(number: int, kernels: int) -> bool:
    """Whether a child process that has the mutant notices it."""
    command = [
        sys.executable,
        "-m",
        "tests.mutants",
        "--only",
        str(number),
        "--kernels",
        str(kernels),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def hunt(number: int, kernels: int) -> int:
    """Plant a mutant here, and run generated kernels until one goes wrong."""
    from tests.fuzz.differential import check, generate

    all_mutants()[number].plant()
    for seed in range(kernels):
        try:
            check(generate(seed), seed, (0,))
        except Exception as error:
            print(f"{all_mutants()[number].name}: seed {seed}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
