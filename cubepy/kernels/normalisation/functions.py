"""The functions of a caller, and the index of the result that an epilogue gets."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.calls.epilogues import applied_at


def finisher(where: Any, epilogue: Any, extras: Any, places: Any) -> Any:
    """What an epilogue makes of a line of a row that has an index in the view."""
    if epilogue is None:
        return unchanged

    def finish(v: Any, j: Any) -> Any:
        return applied_at(epilogue, v, lambda k: result_index((*where, j + k), places), extras)

    return finish


def unchanged(v: Any, j: Any) -> Any:
    """The line."""
    return v


def result_index(view: Any, places: Any) -> Any:
    """An index of the result, of an index of the view."""
    return tuple(summed_index(view, terms) for terms in places.terms)


def summed_index(view: Any, terms: Any) -> Any:
    """The sum of some indices times their factors."""
    found = 0
    for k, times in terms:
        found = found + view[k] * times
    return found
