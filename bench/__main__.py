"""`python -m bench`: time CubePy beside its peers, or check that all of them are right."""

import gc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from bench import machine, peers
from bench.measure import Plan, measure
from bench.report import make_console, print_report
from bench.results import Report, RowResult, evaluate, failed
from bench.suite import Row, all_rows, check, select

RESULTS = Path(__file__).parent / "results"


def main(
    only: Annotated[Optional[str], typer.Option(help="rows whose name has this")] = None,  # noqa: UP045
    check: Annotated[bool, typer.Option("--check", help="compare small results; no times")] = False,
    repeat: Annotated[int, typer.Option(help="undisturbed rounds per row")] = 15,
    limit: Annotated[float, typer.Option(help="seconds per row")] = 25.0,
    threads: Annotated[int, typer.Option(help="threads of each side; 0: all cores")] = 0,
    json: Annotated[Path, typer.Option(help="where results go")] = RESULTS / "latest.json",
    plot: Annotated[Optional[Path], typer.Option(help="draw ratios (.svg, .png)")] = None,  # noqa: UP045
    show: Annotated[Optional[Path], typer.Option(help="print results of before")] = None,  # noqa: UP045
    names: Annotated[bool, typer.Option("--list", help="list the rows")] = False,
) -> None:
    """Time CubePy and its peers, interleaved in one process on the same arrays."""
    console = make_console()
    if show is not None:
        finish(Report.from_json(show.read_text(encoding="utf-8")), console, None, plot)
        return
    rows = select(all_rows(), only)
    if not rows:
        raise typer.BadParameter(f"no row is named like {only!r}; --list shows all")
    if names:
        console.print("\n".join(row.name for row in rows), markup=False, highlight=False)
    elif check:
        raise typer.Exit(run_checks(rows, console))
    else:
        plan = Plan(rounds=repeat, limit=limit)
        finish(run(rows, plan, threads or peers.all_cores(), console), console, json, plot)


def run(rows: list[Row], plan: Plan, threads: int, console: Console) -> Report:
    """Measure every row; Ctrl-C ends with those that were."""
    report = Report(machine.describe(), threads, peers.absent())
    with suppress(KeyboardInterrupt):
        for number, row in enumerate(rows, 1):
            with console.status(f"{number} of {len(rows)}: {row.name}"):
                report.rows.append(_run_row(row, plan, threads))
    return report


def _run_row(row: Row, plan: Plan, threads: int) -> RowResult:
    rounds = plan.rounds if row.rounds is None else min(row.rounds, plan.rounds)
    peers.set_threads(row.threads or threads)
    gc.collect()
    try:
        case = row.make(False)
        if not case.contenders:
            raise LookupError("it needs a prebuilt kernel that is not here")
        calls = {contender.name: contender.call for contender in case.contenders}
        return evaluate(row, case, measure(calls, replace(plan, rounds=rounds)))
    except Exception as error:  # the other rows are still worth having
        return failed(row, error)


def run_checks(rows: list[Row], console: Console) -> int:
    """Compare every row's contenders with float64 references; the exit code."""
    problems = 0
    for name in peers.absent():
        console.print(f"absent: {name}")
    for row in rows:
        try:
            found = check(row.make(True))
        except Exception as error:  # name all rows that fail, not the first
            found = [f"{type(error).__name__}: {error}"]
        for problem in found:
            console.print(f"wrong: {row.name}: {problem}", markup=False, highlight=False)
        problems += len(found)
    console.print(f"{len(rows)} rows checked, {problems} problems")
    return 1 if problems else 0


def finish(report: Report, console: Console, json: Path | None, plot: Path | None) -> None:
    """Print, write and draw."""
    print_report(report, console)
    if json is not None:
        report.write(json)
    if plot is not None:
        from bench.plot import draw

        draw(report, plot)


if __name__ == "__main__":
    typer.run(main)
