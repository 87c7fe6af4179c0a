"""What ptxas reports about machine code: registers, spills, shared memory, and lost performance."""

from __future__ import annotations

import re

from cubepy.record import dataclass

_LOSS = re.compile(r"ptxas\s*\w*\s*:\s*(\(C7\d+\).*)")
"""Numbered advice: `wgmma` that is serialised, `setmaxnreg` that is ignored."""
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a unit of a kernel uses (bytes; `shared`: of a cube), and what ptxas gave up."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    losses: tuple[str, ...]

    def text(self, dynamic: int) -> str:
        """The stage `resources`; `dynamic` bytes of shared memory are asked for at the launch."""
        lines = [
            f"registers      {self.registers} for each unit",
            f"spills         {self.spill_stores} bytes stored, {self.spill_loads} bytes loaded",
            f"stack          {self.stack} bytes for each unit",
            f"shared memory  {self.shared + dynamic} bytes for each cube",
        ]
        return "\n".join((*lines, *(f"ptxas: {text}" for text in self.losses))) + "\n"


def losses_of(log: str) -> tuple[str, ...]:
    """The lines of a log that report lost performance, each once."""
    return tuple(dict.fromkeys(m.group(1).strip() for m in _LOSS.finditer(log)))


def resources_of(log: str, entry: str) -> Resources:
    """What a verbose log says of a kernel."""
    _, _, after = log.partition(f"Function properties for {entry}\n")
    memory = _MEMORY.search(after)
    stack, stores, loads = map(int, memory.groups()) if memory else (0, 0, 0)
    used = after.partition("Used ")[2].partition("\n")[0]
    shared = re.search(r"(\d+) bytes smem", used)
    return Resources(
        int(used.partition(" ")[0] or 0),
        stack,
        stores,
        loads,
        int(shared.group(1)) if shared else 0,
        losses_of(log),
    )
