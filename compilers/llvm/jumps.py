"""The targets of jumps while code is emitted, and from where they are reached with which values."""

from __future__ import annotations

from typing import TypeAlias

Edge: TypeAlias = tuple[str, list[str]]
"""The block of a jump, and the values that it takes along."""


class Merge:
    """The end of an `if`: its block, and from where it is reached with which values."""

    def __init__(self, after: str, edges: list[Edge]) -> None:
        self.after, self.edges = after, edges


class Loop:
    """An open loop: the blocks that `continue` and `break` jump to, and with which values."""

    def __init__(self, following: str, end: str) -> None:
        self.following, self.end = following, end
        self.continues: list[Edge] = []
        self.exits: list[Edge] = []
