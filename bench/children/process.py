"""Run the scripts of this folder and read the number that they print."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ChildFailed(Exception):
    """A script ended with an error; its last words are the message."""


def run_child(name: str, *arguments: str, threads: int) -> float:
    """The number that `python -m bench.children.<name>` prints, without any cache on disk."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **os.environ,
            "CUBEPY_CACHE_DIR": empty,
            "CUBEPY_NUM_THREADS": str(threads),
            "NUMBA_NUM_THREADS": str(threads),
        }
        command = [sys.executable, "-m", f"bench.children.{name}", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ChildFailed(f"{name} {' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.split()[-1])
