"""The one plot: how many times CubePy is as fast as its peer, row by row, with the floors."""

from pathlib import Path

from bench.results import Report, Verdict

LABELS = ("out", "returned")
COLOURS = {"out": "tab:blue", "returned": "tab:orange"}


def draw(report: Report, path: Path) -> None:
    """Write the plot as the kind of file that `path` names. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (f"{row.group} {row.label}", verdict)
        for row in report.rows
        for verdict in row.verdicts
        if verdict.label in LABELS
    ]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.22 * len(bars)), layout="constrained")
    for height, (_, verdict) in enumerate(bars):
        _draw_bar(axes, height, verdict)
    axes.set_yticks(range(len(bars)), [f"{name}, {verdict.label}" for name, verdict in bars])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times the speed of the best peer (bar); floor (line)")
    axes.set_title(report.machine["cpu"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _draw_bar(axes: object, height: int, verdict: Verdict) -> None:
    axes.barh(height, verdict.value, color=COLOURS[verdict.label])  # type: ignore[attr-defined]
    if verdict.floor is not None:
        axes.vlines(verdict.floor, height - 0.4, height + 0.4, "red")  # type: ignore[attr-defined]
