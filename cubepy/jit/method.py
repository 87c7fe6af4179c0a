"""Kernels that are methods: the object that they are taken from is their first argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cubepy.errors import fail
from cubepy.lang.function import BoundFunction

if TYPE_CHECKING:
    from cubepy.jit.kernel import CubeKernel, Launcher
    from cubepy.runtimes.base import Occupancy


class MethodKernel(BoundFunction):
    """What `obj.kernel` gives; it is used as the kernel is, without the first argument.

    Dataclasses and NamedTuples are arguments like others; any other object is a comptime value,
    known by its hash, whose attributes are compared again at each launch.
    """

    function: CubeKernel

    def __getitem__(self, grid: Any) -> MethodLauncher:
        """As `CubeKernel.__getitem__`."""
        return MethodLauncher(self.function[grid], self.owner)

    def over(self, what: Any, *, per: str = "unit", cube_dim: Any = None) -> MethodLauncher:
        """As `CubeKernel.over`."""
        launcher = self.function.over(what, per=per, cube_dim=cube_dim)
        return MethodLauncher(launcher, self.owner)

    def configure(self, **settings: Any) -> MethodKernel:
        """As `CubeKernel.configure`."""
        return self.function.configure(**settings).__get__(self.owner)

    def inspect(self, *args: Any, **kwargs: Any) -> str:
        """As `CubeKernel.inspect`."""
        return self.function.inspect(self.owner, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Kernels run over a grid; a call without one is a mistake outside of kernels."""
        raise fail("E409", kernel=self.__name__)

    def __repr__(self) -> str:
        return f"<{self.function!r} of {self.owner!r}>"


class MethodLauncher:
    """A launcher whose first argument is given."""

    def __init__(self, launcher: Launcher, owner: Any) -> None:
        self._launcher = launcher
        self._owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """As `Launcher.__call__`."""
        self._launcher(self._owner, *args, **kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], None]:
        """As `Launcher.bind`."""
        return self._launcher.bind(self._owner, *args, **kwargs)

    def occupancy(self, *args: Any, **kwargs: Any) -> Occupancy:
        """As `Launcher.occupancy`."""
        return self._launcher.occupancy(self._owner, *args, **kwargs)

    def inspect(self, *args: Any, **kwargs: Any) -> str:
        """As `Launcher.inspect`."""
        return self._launcher.inspect(self._owner, *args, **kwargs)
