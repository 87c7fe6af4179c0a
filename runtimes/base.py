"""What every runtime offers: devices that load artifacts and launch them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cubepy.artifact import Artifact
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Properties:
    """What a device is: a name for people, its cores, and its memory in bytes."""

    name: str
    cores: int
    memory_bytes: int


class Device(Protocol):
    """A device of one runtime. `name` is what `cp.device(name)` takes."""

    name: str

    @property
    def target(self) -> Target:
        """What kernels are compiled for."""
        ...

    @property
    def properties(self) -> Properties:
        """Name, cores and memory."""
        ...

    def load(self, artifact: Artifact) -> Any:
        """Make compiled code ready to be launched."""
        ...

    def launch(self, loaded: Any, block: Any, count: int, grain: int) -> None:
        """Run cubes 0..count of a loaded artifact with an argument block."""
        ...

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        ...
