"""What a launch may choose about compilation."""

from __future__ import annotations

from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Everything of a launch that changes code, besides its signature and the target."""

    contract: bool = True
    fast_math: bool = False
