"""How commands print: tables for people through Rich, JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

import cubepy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def console() -> Console:
    """Where tables go; not narrower than 120 columns when nobody is looking."""
    from rich.console import Console

    found = Console(highlight=False, soft_wrap=False)
    if not found.is_terminal:
        found.width = max(found.width, 120)
    return found


def make_table(*columns: str, title: str | None = None) -> Table:
    """An empty table of plain text; columns whose name starts with `>` are right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        justify = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=justify, overflow="fold")
    return table


def show_version(as_json: bool) -> None:
    """The version of CubePy."""
    if as_json:
        print_json({"version": cubepy.__version__})
    else:
        typer.echo(f"cubepy {cubepy.__version__}")


def bytes_text(count: int) -> str:
    """A size for people, in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def time_text(seconds: float) -> str:
    """A duration for people: three digits and a unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
