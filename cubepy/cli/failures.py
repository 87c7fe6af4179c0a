"""Errors of the command line: short, on stderr, with an exit code. Knows no command.

Exit codes: 0 done; 1 a kernel or a check failed; 2 the command was used wrongly.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

FAILED = 1
USAGE = 2

_USAGE_CODES = frozenset({"E406", "E415", "E416", "E420", "E501", "E502", "E503", "E506"})
"""Errors of the catalogue that, coming from a command line, are mistakes in that line."""


class Failure(Exception):
    """What went wrong and what to do about it; ends the command with `status`. `code` is that of
    the catalogue of errors, if there is one."""

    def __init__(
        self, message: str, suggestion: str = "", status: int = FAILED, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.suggestion = suggestion
        self.status = status
        self.code = code

    def render(self) -> str:
        """The text for stderr."""
        lines = [f"error: {self}"]
        if self.suggestion:
            lines.append(f"  help: {self.suggestion}")
        return "\n".join(lines)

    def describe(self) -> dict[str, Any]:
        """The failure as plain data, which commands print with `--json`."""
        found = {"code": self.code, "message": str(self), "help": self.suggestion or None}
        return {"error": found, "status": self.status}


def misuse(message: str, suggestion: str = "") -> Failure:
    """A failure of usage."""
    return Failure(message, suggestion, USAGE)


def status_of(code: str | None) -> int:
    """The exit code for an error of CubePy with this code of the catalogue."""
    return USAGE if code in _USAGE_CODES else FAILED


def closest(name: str, names: Iterable[str]) -> str:
    """Names that look like `name`, as a question; nothing where none does."""
    by_lower = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), list(by_lower), 3, 0.55)
    return f"did you mean {' or '.join(f'`{by_lower[k]}`' for k in found)}?" if found else ""
