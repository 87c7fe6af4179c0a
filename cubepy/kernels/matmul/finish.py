"""What is done with a sum before it is stored: bias, epilogue, conversion."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied_along


def chosen(x: Any, where: Any) -> Any:
    """A part of a tensor; all of it where nothing is chosen."""
    return x[where] if len(where) else x


def finished(
    v: Any, index: Any, biases: Any, extras: Any, epilogue: Any, is_inside: bool = False
) -> Any:
    """The result for a line of sums from `index` on; `is_inside`: all of it exists, so that nothing
    is read conditionally."""
    if len(biases):
        row = biases[0][index[:-1]]
        if is_inside:
            v = v + cp.load(row, index[-1], line=v.line_size, fill=None)
        else:
            v = v + cp.load(row, index[-1], line=v.line_size)
    if epilogue is None:
        return v
    chosen = getattr(epilogue, "inside", epilogue) if is_inside else epilogue
    return applied_along(chosen, v, index, len(index) - 1, extras)


def finished_number(v: Any, index: Any, biases: Any, extras: Any, epilogue: Any) -> Any:
    """The same for one sum, which is a line of one to an epilogue."""
    if len(biases):
        v = v + biases[0][index]
    if epilogue is None:
        return v
    return applied_along(epilogue, cp.Line[v.dtype, 1](v), index, len(index) - 1, extras)[0]
