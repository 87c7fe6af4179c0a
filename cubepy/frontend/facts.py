"""What a trace finds out about a kernel, besides the kernel itself."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from cubepy.record import dataclass


@dataclass
class Facts:
    """What the launch needs to know of a traced kernel."""

    uses_axes: bool = False
    shaped: set[str] = field(default_factory=set[str])
    written: set[str] = field(default_factory=set[str])
    read: set[str] = field(default_factory=set[str])
    lined: set[str] = field(default_factory=set[str])
    """Tensors of scalars that are accessed in lines."""
    captures: dict[tuple[int, str], tuple[Any, str, Any]] = field(
        default_factory=dict[tuple[int, str], tuple[Any, str, Any]]
    )
