"""`python -m bench.compile [--against REV]`: how long compilation takes, in turns with a commit.

Kernels are compiled cold, in a process whose LLVM is warm; the table has the medians of their
phases. Large programs, and the first launch of a process beyond importing NumPy, have a process
each. With `--against` every process of this checkout is followed by one of the other commit, and
the median of the ratios of such pairs is printed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.table import Table

from bench.children.compile_kernels import KERNELS, PHASES, STRESS

ROOT = Path(__file__).parents[1]
CHILD = ROOT / "bench" / "children" / "compile_kernels.py"
Figures = dict[str, list[float]]


@dataclass
class Side:
    """A commit's checkout, and what was measured of it: seconds by row."""

    name: str
    root: Path
    figures: Figures = field(default_factory=dict[str, list[float]])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, row: str, seconds: float) -> None:
        """Note one measurement."""
        self.figures.setdefault(row, []).append(seconds)

    def median(self, row: str) -> float | None:
        """The median of a row; None if it was not measured."""
        held = self.figures.get(row)
        return statistics.median(held) if held else None


def main(
    against: Annotated[Optional[str], typer.Option(help="a commit to compare with")] = None,  # noqa: UP045
    rounds: Annotated[int, typer.Option(help="processes of each kind and side")] = 5,
    stress: Annotated[bool, typer.Option(help="compile the large programs too")] = True,
    limit: Annotated[float, typer.Option(help="seconds for a process")] = 60.0,
    json_to: Annotated[Optional[Path], typer.Option("--json", help="where figures go")] = None,  # noqa: UP045
) -> None:
    """Measure compilation, here and perhaps at another commit, in turns."""
    with checkouts(against) as sides:
        for _ in range(rounds):
            for side in sides:
                measure(side, limit)
        for name in STRESS if stress else ():
            for side in [*sides] * min(rounds, 2):
                measure_stress(side, name, limit)
    print_table(sides)
    if json_to is not None:
        held = {side.name: {"s": side.figures, "failed": side.failures} for side in sides}
        json_to.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


@contextmanager
def checkouts(against: str | None) -> Iterator[list[Side]]:
    """This checkout, and the other commit's in a temporary worktree."""
    sides = [Side("here", ROOT)]
    if against is None:
        yield sides
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkout"
        git("worktree", "add", "--detach", str(path), against)
        try:
            yield [*sides, Side(against, path)]
        finally:
            git("worktree", "remove", "--force", str(path))


def git(*words: str) -> None:
    """Run git in this repository."""
    subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True)


def measure(side: Side, limit: float) -> None:
    """One process of warm compilations, and one first launch."""
    found = child(side, "kernels", limit, "7")
    for name, phases in (found or {}).items():
        for phase, seconds in phases.items():
            side.add(row(name, phase), seconds)
    seconds = child(side, "first", limit)
    if seconds is not None:
        side.add("first launch", seconds)


def measure_stress(side: Side, name: str, limit: float) -> None:
    """One process of a large program, unless it failed before."""
    seconds = None if name in side.failures else child(side, name, limit)
    if seconds is not None:
        side.add(name, seconds)


def child(side: Side, what: str, limit: float, *words: str) -> Any:
    """What a process of a side measures; None, and a note, if it fails."""
    with tempfile.TemporaryDirectory() as empty:
        # An installed package comes with its byte code; each checkout keeps its own here.
        environment = {
            **os.environ,
            "CUBEPY_CACHE": "0",
            "CUBEPY_CACHE_DIR": empty,
            "PYTHONPATH": str(side.root),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, str(CHILD), what, *words]
        try:
            done = subprocess.run(
                command,
                cwd=empty,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            side.failures[what] = f"more than {limit:.0f} s"
            return None
    if done.returncode:
        side.failures[what] = (done.stderr.strip().splitlines() or ["no words"])[-1][:80]
        return None
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, phase: str) -> str:
    """The name of a row of the table."""
    return name if phase == "all" else f"  {name}: {phase}"


def rows() -> list[str]:
    """All rows, in the order of the table."""
    phased = [row(name, phase) for name in KERNELS for phase in ("all", *PHASES)]
    return [*phased, "first launch", *STRESS]


def print_table(sides: list[Side]) -> None:
    """Medians in milliseconds, and how many times this checkout is faster."""
    table = Table("compile", *(side.name for side in sides), *(["faster"] if sides[1:] else []))
    for name in rows():
        found = [side.median(name) for side in sides]
        if not any(found) and not any(name in side.failures for side in sides):
            continue
        cells = [cell(side, name) for side in sides]
        if sides[1:]:
            cells.append(ratio(*(side.figures.get(name, []) for side in sides)))
        table.add_row(name, *cells)
    Console(width=110).print(table)


def ratio(here: list[float], there: list[float]) -> str:
    """The median over the turns of how many times this checkout is faster."""
    pairs = [t / h for h, t in zip(here, there, strict=False)]
    return f"{statistics.median(pairs):.2f}x" if pairs else ""


def cell(side: Side, name: str) -> str:
    """A figure, or why there is none."""
    found = side.median(name)
    return side.failures.get(name, "") if found is None else f"{found * 1e3:.1f} ms"


if __name__ == "__main__":
    typer.run(main)
