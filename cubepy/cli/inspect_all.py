"""`cubepy inspect --all`: what one kernel becomes on every target, one text after the other.

No device is needed. A text that needs a tool which is not here, or a target that lacks something
the kernel uses, is named with the reason and the command that helps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from cubepy.artifact import Listing
from cubepy.cli.failures import misuse
from cubepy.cli.inspection import Request, inspect_kernel, trace
from cubepy.cli.output import print_json
from cubepy.errors import UnsupportedError
from cubepy.record import dataclass

VIEWS = (
    ("IR", "cpu", "ir"),
    ("LLVM", "cpu", "llvm"),
    ("assembly", "cpu", "asm"),
    ("CUDA C", "cuda:sm_90a", "source"),
    ("PTX", "cuda:sm_90a", "ptx"),
    ("SASS", "cuda:sm_90a", "sass"),
    ("OpenCL C", "opencl", "source"),
    ("Metal", "metal", "source"),
    ("HIP", "hip:gfx942", "source"),
)
"""Title, target and stage; `--target` takes the place of the targets of its kind."""
_RULE = 100


@dataclass(frozen=True, slots=True)
class View:
    """One text of a kernel, or why there is none."""

    title: str
    target: str
    stage: str
    text: Listing | None
    reason: str


def show_all(request: Request, as_json: bool) -> None:
    """Print every view."""
    if request.stage is not None:
        raise misuse("--all shows every stage", "leave out --stage, or leave out --all")
    name, views = inspect_all(request)
    if as_json:
        print_json({"kernel": name, "views": [_describe(view) for view in views]})
        return
    for view in views:
        head = f"=== {view.title} ({view.target}) "
        typer.echo(head.ljust(_RULE, "="))
        typer.echo(view.reason if view.text is None else view.text)


def inspect_all(request: Request) -> tuple[str, list[View]]:
    """The kernel's name and its views; what is wrong with the kernel itself is raised."""
    kind = request.target.partition(":")[0]
    name, views = "", list[View]()
    for title, usual, stage in VIEWS:
        target = request.target if usual.partition(":")[0] == kind else usual
        asked = replace(request, target=target, stage=stage)
        try:
            name, text = inspect_kernel(asked)
        except UnsupportedError as error:
            views.append(View(title, target, stage, None, str(error)))
        else:
            views.append(View(title, target, stage, text, ""))
    return name, views


def _describe(view: View) -> dict[str, Any]:
    found: dict[str, Any] = {"title": view.title, "target": view.target, "stage": view.stage}
    if view.text is None:
        return found | {"text": None, "reason": view.reason}
    return found | {"text": str(view.text), "map": trace(view.text)}
