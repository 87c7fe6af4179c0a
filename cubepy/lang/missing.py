"""Names that `cubepy` does not have, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from cubepy.ir.types import find_dtype


def no_attribute(name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that is none of these: it names the dtype that another library calls so,
    or what is like it."""
    dtype = find_dtype(name)
    likely = [dtype.name] if dtype is not None else get_close_matches(name, names, 1, 0.7)
    hint = f"; did you mean `cp.{likely[0]}`?" if likely else ""
    return AttributeError(f"module 'cubepy' has no attribute {name!r}{hint}")
