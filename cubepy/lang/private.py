"""Private names: in the body of a class `P`, Python's compiler reads `__x` as `_P__x`."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import Any

_PRIVATE = re.compile(r"(?<!\w)__\w*[^\W_]_?(?!\w)")
"""What a text has if there may be private names in it: `__x`, but not `__x__`."""
_FIELDS = ("id", "attr", "arg", "name", "rest")
"""The fields of nodes that hold one name."""


def may_be_private(text: str) -> bool:
    """Whether a text may have private names."""
    return _PRIVATE.search(text) is not None


def mangle(node: ast.AST, code: Any) -> None:
    """Give private names in the tree of a function those that its code has."""
    owner = _class_of(code.co_qualname).lstrip("_")
    if not owner:
        return
    for part in ast.walk(node):
        if isinstance(part, ast.keyword):
            continue  # the names of arguments stay as they are
        for field in _FIELDS:
            name = getattr(part, field, None)
            if isinstance(name, str) and _is_private(name):
                setattr(part, field, f"_{owner}{name}")


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _class_of(qualname: str) -> str:
    """The innermost class around a function; empty without one. What is defined in a function
    follows `<locals>`, so that a name right before another is a class."""
    parts = qualname.split(".")
    owners = [a for a, b in pairwise(parts) if "<locals>" not in (a, b)]
    return owners[-1] if owners else ""
