"""`cubepy explain`: the catalogue of errors."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent
from typing import Any

from cubepy.cli.failures import closest, misuse
from cubepy.cli.output import console, make_table, print_json
from cubepy.errors import CATALOGUE, ErrorCode


def show_explanation(code: str | None, as_json: bool) -> None:
    """One code, or all of them."""
    rows = [find_code(code)] if code else list(CATALOGUE.values())
    if as_json:
        described = [describe(row) for row in rows]
        print_json(described[0] if code else {"codes": described})
    elif code:
        _print_code(rows[0])
    else:
        _print_codes(rows)


def find_code(code: str) -> ErrorCode:
    """The row of a code, in any case, with or without the E."""
    key = code.strip().upper()
    found = CATALOGUE.get(key) or CATALOGUE.get(f"E{key}")
    if found is None:
        suggestion = closest(key, CATALOGUE) or "`cubepy explain` lists all codes"
        raise misuse(f"there is no error code `{code}`", suggestion)
    return found


def describe(row: ErrorCode) -> dict[str, Any]:
    """A row as plain data; words in braces stand for what the error fills in."""
    return {
        "code": row.code,
        "class": row.kind.__name__,
        "message": row.template,
        "help": row.hint,
        "explanation": row.explanation,
    }


def _print_code(row: ErrorCode) -> None:
    from rich.syntax import Syntax

    out = console()
    out.print(f"[bold]{row.code}[/bold]  cp.{row.kind.__name__}")
    out.print(f"  {row.template}", markup=False)
    if row.hint:
        out.print(f"  help: {row.hint}", markup=False)
    for kind, text in _parts(row.explanation):
        out.print()
        if kind == "python":
            code = Syntax("", "python", background_color="default").highlight(indent(text, " " * 4))
            code.rstrip()
            out.print(code, soft_wrap=True)
        else:
            out.print(text, markup=False, highlight=False, soft_wrap=True)


def _parts(page: str) -> Iterator[tuple[str, str]]:
    """The paragraphs and the code blocks of a page, with what they are."""
    for k, part in enumerate(page.split("```")):
        kind, _, text = part.partition("\n") if k % 2 else ("", "", part)
        if text.strip():
            yield kind, text.strip()


def _print_codes(rows: list[ErrorCode]) -> None:
    from rich.text import Text

    table = make_table("code", "class", "message")
    for row in rows:
        table.add_row(row.code, row.kind.__name__, Text(row.template))
    console().print(table)
