"""The report of the demo: one HTML file without any other resource."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from string import Template

import numpy as np

import cubepy
from cubepy.cli.demo.listings import Pane, python_pane, stage_panes, stylesheet
from cubepy.cli.demo.picture import Photograph, data_uri
from cubepy.cli.demo.trial import Outcome, Row
from cubepy.cli.output import bytes_text, time_text
from cubepy.runtimes.native.host import host_cpu, llvm_versions
from cubepy.runtimes.native.pool import get_pool
from cubepy.runtimes.registry import devices

BUSY = '<p class="warning">Other programs were busy on this machine: the times are unreliable.</p>'


def machine() -> dict[str, str]:
    """The machine and the versions that the numbers belong to."""
    properties = devices()[0].properties
    found = {
        "processor": f"{properties.name} ({host_cpu()[0]})",
        "cores": f"{properties.cores} usable, {get_pool().threads} threads for everybody",
        "memory": bytes_text(properties.memory_bytes),
        "system": platform.platform(terse=True),
        "CubePy": cubepy.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "LLVM": llvm_versions()["LLVM"],
    }
    return found | {name: text for name in ("numba", "torch") if (text := _version(name))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def render(photograph: Photograph, outcomes: Sequence[Outcome], busy: bool) -> str:
    """The page."""
    template = Template((files("cubepy.cli.demo") / "report.html").read_text(encoding="utf-8"))
    about = machine()
    return template.substitute(
        colours=stylesheet(),
        story=escape(photograph.story),
        processor=escape(about["processor"]),
        warning=BUSY if busy else "",
        summary="\n".join(_summary_row(outcome) for outcome in outcomes),
        steps="\n".join(_section(k, outcome) for k, outcome in enumerate(outcomes, 1)),
        machine="\n".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in about.items()),
        date=date.today().isoformat(),
        version=escape(cubepy.__version__),
    )


# The summary


def _summary_row(outcome: Outcome) -> str:
    key, title = escape(outcome.step.key), escape(outcome.step.title)
    cells = [f'<th scope="row"><a href="#{key}">{title}</a></th>']
    cells.append(f"<td class=num>{time_text(outcome.own_seconds)}</td>")
    cells += [_ratio_cell(outcome, name) for name in ("NumPy", "numba", "torch")]
    cells.append(f"<td>{'✓' if outcome.is_right else '✗ wrong'}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _ratio_cell(outcome: Outcome, name: str) -> str:
    for row in outcome.rows:
        if row.contender == name and row.seconds:
            ratio = row.seconds / outcome.own_seconds
            kind = "win" if ratio >= 1.05 else "loss" if ratio <= 0.95 else ""
            return f'<td class="num {kind}">{ratio_text(ratio)}</td>'
    return '<td class="num none">–</td>'


def ratio_text(ratio: float) -> str:
    """How many times as fast, with three digits at most."""
    return f"{ratio:.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def error_text(error: float) -> str:
    """The largest difference from NumPy in f64."""
    return f"{error:.1e}" if error else "0"


# The steps


def _section(number: int, outcome: Outcome) -> str:
    step = outcome.step
    panes = stage_panes(step, outcome.before, outcome.after)
    return f"""
<section id="{escape(step.key)}">
<h2><b>{number}</b> {escape(step.title)}</h2>
<p>{escape(step.about)}</p>
<div class="pictures">{_picture(outcome.before, "before")}{_picture(outcome.after, "after")}</div>
{_times(outcome)}
<div class="code">{_pane(python_pane(step))}{_tabs(step.key, panes)}</div>
</section>"""


def _picture(pixels: np.ndarray, word: str) -> str:
    height, width = pixels.shape[-2:]
    caption = f"{word}, {width}×{height}"
    image = f'<img src="{data_uri(pixels)}" alt="{word}" loading="lazy">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _times(outcome: Outcome) -> str:
    slowest = max((row.seconds or 0 for row in outcome.rows), default=0) or 1
    rows = "\n".join(_time_row(row, outcome.own_seconds, slowest) for row in outcome.rows)
    head = "<th>contender<th class=num>median<th>&nbsp;<th class=num>beside CubePy"
    head += "<th class=num>largest error<th class=num>first call"
    return f'<table class="times"><thead><tr>{head}</thead><tbody>{rows}</tbody></table>'


def _time_row(row: Row, own: float, slowest: float) -> str:
    kind = "own" if row.is_own else "peer"
    if row.seconds is None:
        median, bar, ratio = "", escape(row.note), ""
    else:
        width = max(0.4, 100 * row.seconds / slowest)
        median, bar = (
            time_text(row.seconds),
            f'<span class="bar" style="width:{width:.1f}%"></span>',
        )
        ratio = f"{row.seconds / own:.3g}"
    error = error_text(row.error) if row.is_right else f"✗ {error_text(row.error)}"
    cells = [f"<th scope=row>{escape(row.contender)}", f"<td class=num>{median}", f"<td>{bar}"]
    cells += [f"<td class=num>{text}" for text in (ratio, error, time_text(row.first))]
    return f'<tr class="{kind}">{"".join(cells)}</tr>'


def _pane(pane: Pane) -> str:
    return f'<div class="pane"><h3>{escape(pane.title)}</h3><pre>{pane.html}</pre></div>'


def _tabs(key: str, panes: Sequence[Pane]) -> str:
    """Panes of which one is seen; radio buttons switch, so that no script is needed."""
    parts = [
        f'<input type="radio" name="{key}" id="{key}-{k}"{" checked" if k == 2 else ""}>'
        f'<label for="{key}-{k}">{escape(pane.title)}</label>'
        for k, pane in enumerate(panes)
    ]
    bodies = [
        f'<div class="body"><pre>{pane.html}</pre>'
        f"<p>{escape(pane.note)} · <code>{escape(pane.command)}</code></p></div>"
        for pane in panes
    ]
    return f'<div class="pane tabs">{"".join(parts)}{"".join(bodies)}</div>'
