"""What functions of the user make of lines: lines again, also where they give one number."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.frontend.promote import promote_literal

NUMBERS = (bool, int, float)


def applied(function: Any, v: Any, rest: Any) -> Any:
    """What a function makes of a line, and the rest of its arguments: a line of as many lanes.

    A number that it gives instead is that of all lanes; a literal takes the dtype of the line.
    """
    found = function(v, *rest)
    dtype = promote_literal(found, v.dtype) if isinstance(found, NUMBERS) else found.dtype
    return cp.Line[dtype, v.line_size](found)
