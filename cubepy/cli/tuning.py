"""`cubepy tune`: search for configurations, show what was measured, write and read picks."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from cubepy.autotune.files import BadFile, export_text, import_text
from cubepy.autotune.jobs import (
    Done,
    Job,
    Sweep,
    fault_of_argument,
    jobs_of,
    run_all,
    run_on_workers,
    workers,
)
from cubepy.autotune.race import interval
from cubepy.autotune.records import Key, Measurement, Records, find_records, named_records
from cubepy.autotune.replay import replay
from cubepy.autotune.session import FULL
from cubepy.autotune.trials import Limits
from cubepy.cli.failures import FAILED, Failure, misuse
from cubepy.cli.output import console, make_table, print_json, time_text
from cubepy.cli.values import split_pairs
from cubepy.record import dataclass

MOST_SHOWN = 90
"""Characters of a problem above its picture."""


@dataclass(frozen=True, slots=True)
class Request:
    """The command line of a search."""

    kernel: str | None
    args: Sequence[str]
    jobs: Path | None
    device: str
    level: str
    budget_s: float | None
    seed: int
    workers: str | None


def show_tuning(request: Request, as_json: bool) -> None:
    """Tune the calls that are asked for; exit code 1 if one of them failed."""
    jobs = _jobs(request)
    if request.level not in ("quick", FULL):
        raise misuse(f"--level {request.level}: quick or full")
    sweep = Sweep(request.level, request.budget_s, request.seed)
    out = console()

    def report(done: Done) -> None:
        if not as_json:
            verdict = done.error or "tuned"
            out.print(f"{done.job.function} {dict(done.job.arguments)}: {verdict}", markup=False)

    found = _run(jobs, sweep, request.workers, report)
    _check_kept(find_records(), "the measurements")
    failed = [done for done in found if done.error]
    if as_json:
        rows = [{"function": d.job.function, "error": d.error} for d in found]
        print_json({"jobs": rows, "failed": len(failed)})
    if failed:
        raise typer.Exit(FAILED)


def _check_kept(records: Records, what: str) -> None:
    """`Failure` where something is known to this process alone, which ends now."""
    if records.why_not:
        help = "try again where another process writes, or choose a folder with CUBEPY_CACHE_DIR"
        raise Failure(f"{what} could not be kept: {records.why_not}", help)


def _run(jobs: list[Job], sweep: Sweep, where: str | None, report: Any) -> list[Done]:
    if where is None:
        return run_all(jobs, sweep, report)
    if not re.fullmatch(_WORKERS, where):
        expected = "a number of processes from 1 on, or the address of a Dask scheduler"
        raise misuse(f"--workers {where}: expected {expected}", "such as 4 or tcp://host:8786")
    with ExitStack() as stack:
        try:
            client = stack.enter_context(workers(where))
        except ImportError:
            raise misuse(
                "--workers needs the package `distributed`", "pip install 'cubepy-jit[tune]'"
            ) from None
        except (OSError, ValueError) as error:
            raise Failure(f"--workers {where}: {error}", "is a scheduler running there?") from None
        return run_on_workers(jobs, sweep, client, report)


_WORKERS = r"[1-9][0-9]{0,3}|(\w+://)?[^/\s]+:[0-9]+"
"""A number, or an address with its port."""


def _jobs(request: Request) -> list[Job]:
    if (request.kernel is None) == (request.jobs is None):
        raise misuse("one of --kernel and --jobs says what to tune", "cubepy tune --help")
    if request.kernel is not None:
        if ":" not in request.kernel:
            raise misuse(f"`{request.kernel}` names no function", "write module:function")
        pairs = split_pairs("--arg", request.args)
        given = {name: _value(text) for name, text in pairs.items()}
        for name, value in given.items():
            if fault := fault_of_argument(value):
                raise misuse(f"--arg {name}={value}: {fault}")
        return [Job(_absolute(request.kernel), tuple(given.items()), request.device)]
    assert request.jobs is not None
    try:
        rows = json.loads(request.jobs.read_text(encoding="utf-8"))
        jobs = jobs_of(rows)
        return [replace(job, function=_absolute(job.function)) for job in jobs]
    except (OSError, ValueError) as error:
        raise misuse(f"--jobs {request.jobs}: {error}") from None


def _absolute(reference: str) -> str:
    """A reference whose file is found from every folder; workers have their own."""
    source, _, name = reference.rpartition(":")
    return f"{Path(source).resolve()}:{name}" if source.endswith(".py") else reference


def _value(text: str) -> Any:
    """A number where a text is one; else a specification, which stays text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def show_records(pattern: str, plot: Path | None, as_json: bool) -> None:
    """What was measured, as a table and as a picture: times with their intervals."""
    records = named_records()
    found = state(records, pattern)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if plot is not None:
        _draw(found, plot)


def state(records: Records, pattern: str) -> list[dict[str, Any]]:
    """Each problem that was measured, with its configurations, the fastest first."""
    picks = {pick.key: pick for pick in reversed(records.picks())}
    keys = dict.fromkeys([*records.measured_keys(), *picks])
    return [
        _problem(records, key, picks.get(key))
        for key in keys
        if fnmatch.fnmatchcase(key.kernel, pattern)
    ]


def _problem(records: Records, key: Key, pick: Any) -> dict[str, Any]:
    predicted, bound = _modelled(records.searches(key))
    measured = records.measurements(key).values()
    rows = [_row(m) | {"predicted": predicted.get(m.config)} for m in measured]
    if pick is not None and pick.config not in {m.config for m in measured}:
        rows.append(_row(Measurement(pick.config, pick.origin, None)) | {"predicted": None})
    rows.sort(key=lambda r: (r["seconds"] is None, r["seconds"] or 0.0))
    about = json.loads(pick.about) if pick is not None else {}
    return {
        "kernel": key.kernel,
        "problem": key.problem,
        "source": key.source,
        "hardware": key.hardware,
        "pick": None if pick is None else pick.config,
        "origin": None if pick is None else pick.origin,
        "about": about,
        "bound": bound,
        "configurations": rows,
    }


def _modelled(searches: list[dict[str, Any]]) -> tuple[dict[str, float], float | None]:
    """What the model predicted for configurations, and the bound of all, in seconds."""
    predicted: dict[str, float] = {}
    bound = 0.0
    for search in searches:
        for message in search["log"]:
            if message["do"] == "predicted":
                predicted[search["texts"][message["k"]]] = message["s"]
            bound = message.get("bound", bound)
    return predicted, bound or None


def replay_records(pattern: str, as_json: bool) -> None:
    """Decide recorded searches again, from their samples and clocks; exit code 1 if one of them
    picks something else now. Nothing is run."""
    records, rows = named_records(), list[dict[str, Any]]()
    for key in records.measured_keys():
        if fnmatch.fnmatchcase(key.kernel, pattern):
            for search in records.searches(key):
                before, now = _replayed(search)
                rows.append({"kernel": key.kernel, "problem": key.problem})
                rows[-1] |= {"before": before, "now": now}
    if as_json:
        print_json(rows)
    for row in [] if as_json else rows:
        verdict = "the same" if row["before"] == row["now"] else f"now {row['now']}"
        text = f"{row['kernel']} {row['problem']}: {row['before']}, {verdict}"
        console().print(text, markup=False)
    if any(row["before"] != row["now"] for row in rows):
        raise typer.Exit(FAILED)


def _replayed(search: dict[str, Any]) -> tuple[str | None, str | None]:
    """What a search picked, and what its record gives now."""
    texts, log = search["texts"], search["log"]
    limits = Limits(search["started"], search["deadline"], search["each_s"], search["seed"])
    ends = [m["pick"] for m in log if m["do"] == "end"]
    before = ends[-1] if ends else None
    try:
        found = (replay(texts, log, limits).outcome or {}).get("pick")
    except ValueError:  # it was ended from outside in the middle of a race
        found = before
    named = {None: None} | dict(enumerate(texts))
    return named[before], named[found]


def _row(m: Measurement) -> dict[str, Any]:
    low, high = interval(m.samples) if m.samples else (None, None)
    return {
        "config": m.config,
        "status": m.status,
        "seconds": m.seconds,
        "low": low,
        "high": high,
        "samples": len(m.samples),
        "detail": m.detail,
    }


def _print(found: list[dict[str, Any]]) -> None:
    out = console()
    for problem in found:
        about = problem["about"]
        why = f"{problem['origin']}, {about.get('reason', '')}" if problem["pick"] else "no pick"
        if "confidence" in about:
            why += f", confidence {about['confidence']:.2f}"
        out.print(f"{problem['kernel']} {problem['problem']} ({why})", markup=False)
        columns = ("", "configuration", ">time", ">95 % interval", ">samples", ">model", "")
        table = make_table(*columns)
        for row in problem["configurations"]:
            time = "" if row["seconds"] is None else time_text(row["seconds"])
            bounds = "" if row["low"] is None else _bounds(row)
            mark = "*" if row["config"] == problem["pick"] else ""
            note = "" if row["status"] == "ok" else f"{row['status']} {row['detail']}".strip()
            model = "" if row["predicted"] is None else time_text(row["predicted"])
            table.add_row(mark, row["config"], time, bounds, str(row["samples"]), model, note)
        out.print(table)
        if problem["bound"] is not None:
            out.print(f"nothing is faster than {time_text(problem['bound'])}", markup=False)
    if not found:
        out.print("nothing was measured; cubepy tune --kernel ... measures", markup=False)


def _bounds(row: dict[str, Any]) -> str:
    return f"{time_text(row['low'])} to {time_text(row['high'])}"


def _draw(found: list[dict[str, Any]], path: Path) -> None:
    """A picture of each problem: configurations by time, with intervals; the pick is dark. What the
    model predicted is a diamond, and the bound that nothing is faster than a dashed line."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise misuse("--plot needs matplotlib", "pip install matplotlib") from None
    shown = [p for p in found if any(r["seconds"] for r in p["configurations"])]
    if not shown:
        raise Failure("nothing was timed", "cubepy tune --kernel ... measures")
    counts = [sum(1 for r in p["configurations"] if r["seconds"]) for p in shown]
    figure = Figure(figsize=(9, 0.9 * len(shown) + 0.26 * sum(counts)), layout="constrained")
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=counts)[:, 0]
    for each, problem in zip(axes, shown, strict=True):
        rows = [r for r in problem["configurations"] if r["seconds"]][::-1]
        times = [1e6 * r["seconds"] for r in rows]
        low = [1e6 * (r["seconds"] - (r["low"] or r["seconds"])) for r in rows]
        high = [1e6 * ((r["high"] or r["seconds"]) - r["seconds"]) for r in rows]
        dark = ["#1f4e79" if r["config"] == problem["pick"] else "#a9c4de" for r in rows]
        bounds = [[max(0.0, v) for v in low], [max(0.0, v) for v in high]]
        each.barh(range(len(rows)), times, xerr=bounds, color=dark)
        modelled = [(1e6 * r["predicted"], y) for y, r in enumerate(rows) if r.get("predicted")]
        if modelled:
            each.plot(*zip(*modelled, strict=True), "D", color="#c55a11", markersize=3)
        if problem.get("bound"):
            each.axvline(1e6 * problem["bound"], linestyle="--", color="#555555", linewidth=1)
        each.set_yticks(range(len(rows)), [r["config"] for r in rows], fontsize=7)
        title = f"{problem['kernel']} {problem['problem']}"
        short = title if len(title) <= MOST_SHOWN else f"{title[:MOST_SHOWN]} …"
        each.set_title(short, fontsize=8, loc="left")
        each.set_xlabel("µs", fontsize=8)
    figure.savefig(path)


def write_picks(file: Path | None, pattern: str, anywhere: bool, as_json: bool) -> None:
    """The picks in force as text, to a file or to stdout."""
    try:
        text = export_text(named_records(), pattern, anywhere)
    except BadFile as error:
        raise Failure(str(error), "export the picks of one kind, or without --anywhere") from None
    if file is None:
        typer.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
    if as_json:
        print_json({"exported": len(json.loads(text)["picks"]), "file": str(file)})


def read_file(file: Path, as_json: bool) -> None:
    """Keep the picks of a file, which go before what is measured."""
    records = named_records()
    try:
        found = import_text(records, file.read_text(encoding="utf-8"))
    except OSError as error:
        raise misuse(f"cannot read {file}: {error.strerror}") from None
    except (BadFile, UnicodeDecodeError) as error:
        raise misuse(f"{file}: {error}") from None
    _check_kept(records, "the picks")
    if as_json:
        print_json({"imported": len(found)})
    else:
        console().print(f"imported {len(found)} picks")
