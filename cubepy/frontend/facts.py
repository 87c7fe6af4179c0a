"""What a trace finds out about a kernel, besides the kernel itself."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from cubepy.frontend.signature import comptime_key, comptime_type
from cubepy.lang.arrays import content, is_numpy
from cubepy.record import dataclass


class _Changed:
    """What a captured name was that changed within a trace: no launch finds it so."""

    def __repr__(self) -> str:
        return "CHANGED"


CHANGED = _Changed()


@dataclass
class Facts:
    """What the launch needs to know of a traced kernel."""

    uses_axes: bool = False
    shaped: set[str] = field(default_factory=set[str])
    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])
    lined: set[str] = field(default_factory=set[str])
    """Tensors of scalars that are accessed in lines."""
    lanewise: bool = False
    """Whether it does not matter where lines begin; asked of line tensors of one axis alone."""
    captures: dict[tuple[int, str], tuple[Any, str, Any]] = field(
        default_factory=dict[tuple[int, str], tuple[Any, str, Any]]
    )
    """By owner and name: what reads the name again, the name, and what it was."""

    def capture(self, owner: Any, name: str, reader: Any, value: Any) -> None:
        """Note a captured name. Another thread may change it while a trace reads it more than once;
        what is compiled then serves one launch."""
        key = id(owner), name
        known = self.captures.get(key)
        changed = known is not None and not means_the_same(known[2], value)
        self.captures[key] = reader, name, CHANGED if changed else value

    def demands_the_same(self, other: Facts) -> bool:
        """Whether two traces ask for the same checks and the same grid."""
        names = ("uses_axes", "shaped", "written", "read", "lined", "lanewise")
        return self is other or all(getattr(self, n) == getattr(other, n) for n in names)


def means_the_same(a: Any, b: Any) -> bool:
    """Whether two values of a captured name give the same kernel."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    a, b = (content(v) if is_numpy(v) else v for v in (a, b))
    try:
        return bool(comptime_key(a) == comptime_key(b)) and comptime_type(a) == comptime_type(b)
    except Exception:  # of the user's `__eq__`
        return False
