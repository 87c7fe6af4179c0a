"""The process's executor, for those who use it only where there is one, and import nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cubepy.runtimes.native.launching.executor import Executor

made: list[Executor | None] = []
"""The executor, once somebody asked for it; None in it where launches go through Python."""


def existing_executor() -> Executor | None:
    """The process's executor, if it was made."""
    return made[0] if made else None
