"""Tables of a run on the terminal.

Groups of operations get one line for each row, with peers side by side; the other groups list
their contenders.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from bench.results import Report, RowResult, Timing, Verdict

WIDTH = 160
PEERS = ("torch", "numpy", "numba")
WIDE = ("max_pool2d", "max_pool2d alignment", "elementwise", "sum")
ROOFS = {"sum": "of read"}


def make_console() -> Console:
    """As wide as the tables where nobody looks at a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def print_report(report: Report, console: Console) -> None:
    """Machine, a table for each group, and the claims that do not hold."""
    for name, value in report.machine.items():
        console.print(f"{name:>12}  {value}", highlight=False)
    console.print(f"{'threads':>12}  {report.threads} for each side", highlight=False)
    if report.absent:
        console.print(f"{'absent':>12}  {', '.join(report.absent)}")
    for group in dict.fromkeys(row.group for row in report.rows):
        rows = [row for row in report.rows if row.group == group]
        console.print(_make_wide(group, rows) if group in WIDE else _make_list(group, rows))
    _print_misses(report, console)


def format_seconds(seconds: float) -> str:
    """Three digits and a unit: 1.23 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{_three_digits(seconds / size)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _format(timing: Timing | None, unit: str = "s") -> str:
    if timing is None:
        return ""
    mark = "~" if timing.is_noisy else ""
    if unit != "s":
        return f"{mark}{timing.median:.3f} {unit}"
    return mark + format_seconds(timing.median)


def _format_ratio(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    text = f"{_three_digits(verdict.value)}x"
    return {None: text, True: f"[green]{text}[/]", False: f"[bold red]{text}[/]"}[verdict.holds]


def _format_share(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    text = f"{verdict.value:.0%}"
    return {None: text, True: f"[green]{text}[/]", False: f"[bold red]{text}[/]"}[verdict.holds]


def _verdict_of(row: RowResult) -> str:
    judged = [v for v in row.verdicts if v.holds is not None]
    if row.error or not judged:
        return row.error
    missed = [v for v in judged if not v.holds]
    if missed and all(v.is_noisy for v in missed):
        return "[yellow]noisy[/]"
    return "[bold red]MISS[/]" if missed else "[green]pass[/]"


def _floors_of(row: RowResult) -> str:
    floors = []
    for verdict in row.verdicts:
        if verdict.floor is not None and verdict.label in ("roof", "relative"):
            floors.append(f"{verdict.floor:.0%}")
        elif verdict.floor is not None and f"{verdict.floor:g}x" not in floors:
            floors.append(f"{verdict.floor:g}x")
        elif verdict.limit is not None:
            floors.append(f"< {verdict.limit:g}")
    return ", ".join(floors)


def _make_wide(group: str, rows: list[RowResult]) -> Table:
    """Columns: times and ratio with `out=`, the same for returned results, rates, verdict."""
    table = Table(title=group, title_justify="left")
    table.add_column(group, no_wrap=True)
    out = ("cubepy out=", *PEERS, "ratio")
    returned = ("returned", "torch", "numpy", "ratio")
    roof = ROOFS.get(group, "of copy")
    columns = [*out, *returned, "GB/s", roof, "of aligned", "floors", "verdict"]
    cells = [list(_wide_cells(row)) for row in rows]
    used = [k for k in range(len(columns)) if any(line[k] for line in cells)]
    for k in used:
        table.add_column(columns[k], justify="right", no_wrap=columns[k] != "verdict")
    for row, line in zip(rows, cells, strict=True):
        table.add_row(row.label, *(line[k] for k in used))
    return table


def _wide_cells(row: RowResult) -> Iterator[str]:
    for who in ("cubepy", *PEERS):
        yield _format(row.find_timing(f"{who} out"))
    yield _format_ratio(row.find_verdict("out"))
    for who in ("cubepy", "torch", "numpy"):
        yield _format(row.find_timing(f"{who} returned"))
    yield _format_ratio(row.find_verdict("returned"))
    ours = row.find_timing("cubepy out")
    yield f"{ours.rate:.1f}" if ours else ""
    yield _format_share(row.find_verdict("roof"))
    yield _format_share(row.find_verdict("relative"))
    yield _floors_of(row)
    yield _verdict_of(row)


def _make_list(group: str, rows: list[RowResult]) -> Table:
    """A line for each contender."""
    table = Table(title=group, title_justify="left")
    has_rates = any(timing.nbytes for row in rows for timing in row.timings)
    headings = ["median", "spread", "GB/s" if has_rates else "ours is", "floors", "verdict"]
    table.add_column(group)
    table.add_column("contender")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        for line in _list_lines(row, has_rates):
            table.add_row(*line)
        table.add_section()
    return table


def _list_lines(row: RowResult, has_rates: bool) -> Iterator[list[str]]:
    if row.error:
        yield [row.label, "", "", "", "", "", row.error]
    for number, timing in enumerate(row.timings):
        ratio = next((v for v in row.verdicts if v.against == timing.name), None)
        last = f"{timing.rate:.1f}" if has_rates else _format_ratio(ratio)
        ends = ["", ""] if number else [_floors_of(row), _verdict_of(row)]
        label = "" if number else row.label
        median, spread = _format(timing, row.unit), f"{timing.spread:.1%}"
        yield [label, timing.name, median, spread, last, *ends]


def _print_misses(report: Report, console: Console) -> None:
    judged = [(r, v) for r in report.rows for v in r.verdicts if v.holds is not None]
    missed = [(row, verdict) for row, verdict in judged if not verdict.holds]
    errors = [row for row in report.rows if row.error]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} claims hold")
    for row, verdict in missed:
        limit = verdict.floor if verdict.limit is None else verdict.limit
        sign = "<" if verdict.limit is None else ">="
        what = f"{row.group}/{row.label}: {verdict.ours}"
        beside = f" beside {verdict.against}" if verdict.against else ""
        noisy = ", in noise" if verdict.is_noisy else ""
        text = f"  {what}{beside}: {verdict.value:.2f} {sign} {limit:g}{noisy}"
        console.print(text, highlight=False)
    for row in errors:
        console.print(f"  {row.group}/{row.label}: {row.error}", highlight=False)
