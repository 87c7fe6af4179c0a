"""Run the scripts of this folder and read the two numbers that they print."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Sample, read_waiting

ROOT = Path(__file__).parents[2]


class ChildFailed(Exception):
    """A script ended with an error; its last words are the message."""


def run_child(name: str, *arguments: str, threads: int) -> Sample:
    """What `python -m bench.children.<name>` measures, without any cache on disk."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **os.environ,
            "CUBEPY_CACHE": "0",
            "CUBEPY_CACHE_DIR": empty,
            "CUBEPY_NUM_THREADS": str(threads),
            "NUMBA_NUM_THREADS": str(threads),
        }
        # An installed package comes with its byte code; a checkout writes it in the first run.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", f"bench.children.{name}", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        raise ChildFailed(" ".join([name, *arguments, "failed:", *last]))
    value, waited = done.stdout.split()[-2:]
    return Sample(float(value), float(waited))


def print_seconds(begin: float, end: float) -> None:
    """What a script says: its seconds, and the share for which it has waited for a core."""
    print(end - begin, read_waiting() / 1e9 / (end - begin))
