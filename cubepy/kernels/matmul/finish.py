"""What is done with a sum before it is stored: bias, epilogue, conversion."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.epilogues import applied


def chosen(x: Any, where: Any) -> Any:
    """A part of a tensor; all of it where nothing is chosen."""
    return x[where] if len(where) else x


def finished(v: Any, index: Any, biases: Any, extras: Any, epilogue: Any) -> Any:
    """The result for a line of sums from `index` on."""
    if len(biases):
        v = v + cp.load(biases[0][index[:-1]], index[-1], line=v.line_size)
    return v if epilogue is None else applied(epilogue, v, (index, *extras))


def finished_number(v: Any, index: Any, biases: Any, extras: Any, epilogue: Any) -> Any:
    """The same for one sum, which is a line of one to an epilogue."""
    if len(biases):
        v = v + biases[0][index]
    return v if epilogue is None else applied(epilogue, cp.Line[v.dtype, 1](v), (index, *extras))[0]
