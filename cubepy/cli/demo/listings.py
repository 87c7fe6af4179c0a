"""The code panes of the report: Python beside what it became, each line traced to the source."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np

from cubepy.artifact import Listing
from cubepy.cli.demo import kernels
from cubepy.cli.demo.steps import Step
from cubepy.jit.kernel import CubeKernel
from cubepy.record import dataclass

STAGES = {"ir": "KernelIR", "llvm": "LLVM IR", "asm": "assembly"}
MOST_LINES = 140
"""Lines of a stage that the report shows."""
_LEXERS = {"python": "python", "llvm": "llvm", "asm": "gas", "ir": "rust"}
_FILE = kernels.__file__
_BLANK = '<span class="row"> </span>'


@dataclass(frozen=True, slots=True)
class Pane:
    """HTML of one listing; `command` prints the whole of it."""

    title: str
    html: str
    note: str = ""
    command: str = ""


def python_pane(step: Step) -> Pane:
    """The source of the step's kernels, with their line numbers in the file."""
    rows: list[str] = []
    for name in step.shows:
        lines, first = inspect.getsourcelines(getattr(kernels, name).function)
        html = _highlight("".join(lines), "python")
        rows += [_source_row(first + k, line) for k, line in enumerate(html)]
        rows.append(_BLANK)
    return Pane("Python", "".join(rows[:-1]))


def _source_row(number: int, html: str) -> str:
    return f'<span class="row" data-l="{number}"><i>{number}</i>{html or " "}</span>'


def stage_panes(step: Step, x: np.ndarray, out: np.ndarray) -> list[Pane]:
    """What the kernel became: one pane for each stage."""
    kernel: CubeKernel = getattr(kernels, main_kernel(step))
    specs = step.specs(x, out)
    panes: list[Pane] = []
    for stage, title in STAGES.items():
        text = kernel.inspect(stage=stage, comptime=dict(step.comptime), **specs)
        assert isinstance(text, Listing)
        panes.append(_stage_pane(title, stage, text, command(step, specs, stage)))
    return panes


def main_kernel(step: Step) -> str:
    """The kernel that is inspected: the first that is launched, helpers aside."""
    inspected = {"tone": "tone_curve"}
    return inspected.get(step.key, step.shows[0])


def command(step: Step, specs: dict[str, Any], stage: str) -> str:
    """The command line that prints a stage."""
    words = ["cubepy inspect", f"{kernels.__name__}:{main_kernel(step)}"]
    words += [f"--arg {name}={spec}" for name, spec in specs.items()]
    words += [f"--comptime {name}={value}" for name, value in step.comptime.items()]
    return " ".join([*words, f"--stage {stage}"])


def _stage_pane(title: str, stage: str, listing: Listing, whole: str) -> Pane:
    """The part of a listing around the lines that come from the kernels' file."""
    lines = listing.splitlines()
    first, last = _window(listing, len(lines))
    html = _highlight("\n".join(lines[first:last]), stage)
    rows = [_stage_row(listing, first + k + 1, line) for k, line in enumerate(html)]
    cut = len(lines) - len(rows)
    note = f"lines {first + 1} to {last} of {len(lines)}" if cut else f"{len(lines)} lines"
    return Pane(title, "".join(rows), note, whole)


def _window(listing: Listing, count: int) -> tuple[int, int]:
    """The range of at most MOST_LINES lines with the most lines from the kernels' file."""
    marks = [listing.places.get(k + 1, ("", 0))[0] == _FILE for k in range(count)]
    starts = range(max(1, count - MOST_LINES + 1))
    first = max(starts, key=lambda k: (sum(marks[k : k + MOST_LINES]), -k))
    return first, min(count, first + MOST_LINES)


def _stage_row(listing: Listing, number: int, html: str) -> str:
    file, line = listing.places.get(number, ("", 0))
    if file != _FILE:
        return f'<span class="row">{html or " "}</span>'
    return f'<span class="row" data-l="{line}">{html or " "}</span>'


def _highlight(text: str, language: str) -> list[str]:
    """Escaped HTML of each line, coloured by classes."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    lexer = get_lexer_by_name(_LEXERS[language], stripnl=False, ensurenl=False)
    html = highlight(text.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return re.sub(r'<span class="w">(\s*)</span>', r"\1", html).split("\n")


def stylesheet() -> str:
    """Colours of the code for light and for dark pages."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="friendly").get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark").get_style_defs("pre")
    return f"{_colours(light)}\n@media (prefers-color-scheme: dark) {{\n{_colours(dark)}\n}}"


def _colours(css: str) -> str:
    """The rules of tokens alone: the page has its own background."""
    return "\n".join(line for line in css.splitlines() if line.startswith("pre ."))
