"""`cubepy bench`: hands over to the repository's `python -m bench`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import cubepy
from cubepy.cli.failures import misuse


def run_benchmark(arguments: Sequence[str]) -> int:
    """Run the benchmarks with these options; their exit code."""
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=find_repository(), check=False).returncode


def find_repository() -> Path:
    """The folder that holds CubePy's `bench`: the checkout in use, or one around this folder."""
    here = Path.cwd()
    for folder in (Path(cubepy.__file__).parents[1], here, *here.parents):
        if (folder / "bench" / "__main__.py").is_file() and (folder / "cubepy").is_dir():
            return folder
    raise misuse(
        "`cubepy bench` needs the repository; the installed package does not carry the benchmarks",
        "clone it and run `make bench` there",
    )
