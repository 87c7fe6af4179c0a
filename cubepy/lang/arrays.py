"""NumPy arrays as constants of kernels: known by their class, compared by what they hold."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """What an array holds: equal for arrays that are the same to a kernel."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    attributes: tuple[tuple[str, int], ...] = ()
    """Those of an object of a subclass, by identity."""


def is_numpy(value: Any) -> bool:
    """Whether `value` is an array of NumPy with at least one axis."""
    return _is_array_class(type(value)) and value.ndim > 0


@lru_cache(maxsize=256)
def _is_array_class(cls: type[Any]) -> bool:
    return any(c.__name__ == "ndarray" and c.__module__ == "numpy" for c in cls.__mro__)


def content(array: Any) -> Content:
    """What an array holds now."""
    own = sorted((name, id(value)) for name, value in getattr(array, "__dict__", {}).items())
    name = array.dtype.str + array.dtype.name
    return Content(name, tuple(array.shape), array.tobytes(), tuple(own))


def frozen(array: Any) -> Any:
    """A copy that nobody can write to."""
    copy = array.copy()
    if hasattr(array, "__dict__"):
        vars(copy).update(vars(array))
    copy.setflags(write=False)
    return copy
