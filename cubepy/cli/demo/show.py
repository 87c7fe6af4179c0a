"""`cubepy demo`: runs the steps, prints their times, writes the report."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from cubepy.cli.demo.peers import installed, set_threads
from cubepy.cli.demo.picture import Photograph, load_photograph
from cubepy.cli.demo.report import error_text, machine, ratio_text, render
from cubepy.cli.demo.trial import Outcome, Row, run_trials
from cubepy.cli.failures import FAILED, Failure
from cubepy.cli.output import console, make_table, print_json, time_text
from cubepy.runtimes.native.pool import get_pool
from cubepy.runtimes.registry import devices

BUDGET = 2.0
"""Seconds of timing for each step."""


def show_demo(image: Path | None, folder: Path, megapixels: float, as_json: bool) -> None:
    """Everything; exit code 1 where a result of CubePy is wrong."""
    photograph = load_photograph(image, megapixels)
    set_threads(get_pool().threads)
    busy = _is_busy()
    outcomes = _run(photograph)
    page = _write(folder, render(photograph, outcomes, busy))
    if as_json:
        print_json(describe(photograph, outcomes, page) | {"busy": busy})
    else:
        _print(photograph, outcomes, page, busy)
    if not all(outcome.is_right for outcome in outcomes):
        raise typer.Exit(FAILED)


def _run(photograph: Photograph) -> list[Outcome]:
    from rich.console import Console

    status = Console(stderr=True).status("compiling, verifying and timing ...")
    if not sys.stderr.isatty():
        return list(run_trials(photograph.planes, BUDGET))
    with status:
        return list(run_trials(photograph.planes, BUDGET))


def _write(folder: Path, html: str) -> Path:
    page = folder / "demo.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(html, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {page}: {error.strerror}", "choose another --output") from None
    return page


def _is_busy() -> bool:
    """Whether other programs used more than a third of the cores in the last minute."""
    cores = devices()[0].properties.cores
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > cores / 3


# For programs


def describe(photograph: Photograph, outcomes: Sequence[Outcome], page: Path) -> dict[str, Any]:
    """The demo as plain data; times in seconds, `ratio` is a contender's time by CubePy's."""
    return {
        "ok": all(outcome.is_right for outcome in outcomes),
        "picture": photograph.story,
        "machine": machine(),
        "steps": [_describe_step(outcome) for outcome in outcomes],
        "report": str(page),
    }


def _describe_step(outcome: Outcome) -> dict[str, Any]:
    return {
        "step": outcome.step.key,
        "title": outcome.step.title,
        "shape": list(outcome.before.shape),
        "ok": outcome.is_right,
        "contenders": [_describe_row(row, outcome.own_seconds) for row in outcome.rows],
    }


def _describe_row(row: Row, own: float) -> dict[str, Any]:
    return {
        "contender": row.contender,
        "ok": row.is_right,
        "max_error": None if math.isnan(row.error) else row.error,
        "first_s": row.first,
        "seconds": row.seconds,
        "ratio": row.seconds / own if row.seconds and own == own else None,
        "note": row.note,
    }


# For people


def _print(photograph: Photograph, outcomes: Sequence[Outcome], page: Path, busy: bool) -> None:
    out, about = console(), machine()
    out.print(f"{about['processor']}, {about['cores']}", markup=False)
    out.print(f"{photograph.story}\n", markup=False)
    columns = ("step", "contender", ">median", ">by CubePy", ">max error", ">first call", "")
    table = make_table(*columns)
    for column in table.columns[:-1]:
        column.no_wrap = True
    for outcome in outcomes:
        for k, row in enumerate(outcome.rows):
            step = outcome.step.title if k == 0 else ""
            table.add_row(step, *_cells(row, outcome.own_seconds), style=_style(row))
        table.add_section()
    out.print(table)
    _print_verdict(outcomes, page, busy)


def _cells(row: Row, own: float) -> list[str]:
    median = time_text(row.seconds) if row.seconds else ""
    ratio = ratio_text(row.seconds / own) if row.seconds else ""
    note = row.note if row.is_right else f"WRONG {row.note}"
    return [row.contender, median, ratio, error_text(row.error), time_text(row.first), note]


def _style(row: Row) -> str:
    if row.is_own:
        return "bold" if row.is_right else "bold red"
    return ""


def _print_verdict(outcomes: Sequence[Outcome], page: Path, busy: bool) -> None:
    out = console()
    wrong = [outcome.step.title for outcome in outcomes if not outcome.is_right]
    if wrong:
        out.print(f"[red]wrong results[/red]: {', '.join(wrong)}")
    else:
        out.print("all results agree with NumPy in double precision")
    absent = [name for name in ("numba", "torch") if name not in installed()]
    if absent:
        out.print(f"not installed, so not compared: {', '.join(absent)}")
    out.print("NumPy runs on one thread; a first call includes compilation")
    if busy:
        out.print("[yellow]other programs were busy here: the times are unreliable[/yellow]")
    out.print(f"report: {page}", markup=False, soft_wrap=True)
