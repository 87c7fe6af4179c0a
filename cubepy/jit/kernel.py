"""`@cube`, kernels and launchers: what users hold and call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, overload

from cubepy.array.streams import queue_of
from cubepy.compilers.base import Options
from cubepy.compilers.registry import find_compiler
from cubepy.config import get
from cubepy.errors import Error, LaunchError, fail
from cubepy.frontend.calls import resolve_annotations
from cubepy.frontend.signature import Signature
from cubepy.jit.arguments import Matcher, finish, line_width, wrong_arguments
from cubepy.jit.compile import Specialisations
from cubepy.jit.fast import FastPath
from cubepy.jit.grid import Grid, checked_cluster, default_cube_dim, fixed
from cubepy.jit.launch import Prepared, Settings, over, prepare
from cubepy.lang.annotations import Spec, spec
from cubepy.lang.function import CubeFunction
from cubepy.runtimes.base import Occupancy
from cubepy.runtimes.registry import find_device
from cubepy.targets import Target, parse_target


class CubeKernel(CubeFunction):
    """A function of the kernel language: launched with a grid, or called by other kernels.

    `kernel[cube_count, cube_dim](...)`, `kernel.over(what)(...)`; see the methods.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Settings | None = None,
        options: Options | None = None,
        made: dict[Any, Specialisations] | None = None,
    ) -> None:
        super().__init__(function)
        self.settings = settings or Settings()
        self.options = options or Options()
        self._made = {} if made is None else made
        self._signature = inspect.signature(function)
        self._annotations: dict[str, Any] | None = None
        self.parameters = tuple(self._signature.parameters)
        self.fast: FastPath | None = None

    @property
    def annotations(self) -> dict[str, Any]:
        """The parameters' annotations as objects."""
        if self._annotations is None:
            self._annotations = resolve_annotations(self.function)
        return self._annotations

    @property
    def specialisations(self) -> Specialisations:
        """The compiled forms under these options and the optimisation level in force."""
        key = (self.options, get("opt_level"))
        found = self._made.get(key)
        if found is None:
            found = self._made.setdefault(key, Specialisations(self.function, self.options))
        return found

    def __getitem__(self, grid: Any) -> Launcher:
        """A launcher over `kernel[cube_count, cube_dim]`, each an int or a tuple of up to three."""
        try:
            return Launcher(self, fixed(grid))
        except Error as error:
            raise without_frames(error) from error.__cause__

    def over(self, what: Any, *, per: str = "unit", cube_dim: Any = None) -> Launcher:
        """A launcher with enough cubes for `what`: an array, an int or a shape (last axis on X).

        `per` says what serves one item: a "unit", a "plane" or a "cube". `cube_dim` defaults to 256
        units. An array that is given to a line-typed parameter counts in lines.
        """
        try:
            return Launcher(self, over(what, per, cube_dim))
        except Error as error:
            raise without_frames(error) from error.__cause__

    def configure(
        self,
        *,
        line_size: int | str | None = None,
        plane_dim: int | None = None,
        device: Any = None,
        stream: Any = None,
        checked: bool | None = None,
        fast_math: bool | None = None,
        contract: bool | None = None,
        cluster: Any = None,
    ) -> CubeKernel:
        """The same kernel with other settings, used in the same way.

        `line_size`: lanes of line-typed tensors, or "auto". `plane_dim`: emulate planes of this
        size. `fast_math`: allow reassociation, reciprocals and ignoring the sign of zero.
        `device`: run there; host arrays are copied to it and back. `stream`: a `cp.Stream`, or
        torch's, CuPy's, Numba's or PyCUDA's; the launch joins it. `contract`: fuse a*b+c (on by
        default). `checked`: test every access, `assert` and integer
        division; the first fault of a launch is raised. `cluster`: cubes along each axis that run
        together on CUDA devices from sm_90 on, at most 8; see `cp.cuda.cluster_rank`.
        """
        settings, options = self.settings, self.options
        if line_size is not None:
            settings = replace(settings, line_size=_checked_width(line_size))
        if plane_dim is not None:
            settings = replace(settings, plane_dim=_checked_plane(plane_dim))
        if device is not None:
            settings = replace(settings, device=_device_name(device))
        if checked is not None:
            settings = replace(settings, checked=checked)
        if stream is not None:
            settings = replace(settings, queue=queue_of(stream))
        if fast_math is not None:
            options = replace(options, fast_math=fast_math)
        if cluster is not None:
            settings = replace(settings, cluster=checked_cluster(cluster))
        if contract is not None:
            options = replace(options, contract=contract)
        return CubeKernel(self.function, settings, options, self._made)

    def inspect(
        self,
        *args: Any,
        target: str = "cpu",
        stage: str | None = None,
        comptime: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> str:
        """The text of a stage, from real arguments or specifications such as "f32[1024]".

        Stages: "ir"; "llvm" and "asm" on CPUs. No device is needed.
        """
        return Launcher(self, None).inspect(
            *args, target=target, stage=stage, comptime=comptime, **kwargs
        )

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, with defaults; `LaunchError` E406 where they do not match."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise wrong_arguments(self.__name__, error, self._signature) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Kernels run over a grid; a call without one is a mistake outside of kernels."""
        raise fail("E409", kernel=self.__name__)

    def __repr__(self) -> str:
        return f"<cube function {self.__qualname__}>"


def _device_name(device: Any) -> str:
    name = getattr(device, "name", device)
    if not isinstance(name, str):
        suggestion = 'pass a name, such as "cpu", or what cp.device(name) gives'
        raise fail("E501", name=repr(device), suggestion=suggestion)
    return name


def _checked_plane(plane_dim: Any) -> int:
    if isinstance(plane_dim, bool) or not isinstance(plane_dim, int) or plane_dim < 1:
        reason = "it is a positive number of units"
        raise fail("E420", name="plane_dim", value=plane_dim, reason=reason)
    return plane_dim


def _checked_width(line_size: int | str) -> int | str:
    if line_size == "auto" or (isinstance(line_size, int) and 1 <= line_size <= 256):
        return line_size
    raise fail("E420", name="line_size", value=line_size, reason='it is "auto" or 1 to 256 lanes')


class Launcher:
    """A kernel and a grid. Calling it launches; `bind` keeps the arguments."""

    def __init__(self, kernel: CubeKernel, grid: Grid | None) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with these arguments; returns when NumPy and CPU torch arrays are written."""
        fast = FastPath.of(self.kernel)
        if not kwargs and fast.launch(self.grid, args):
            return
        try:
            found, matcher = self._prepare(args, kwargs)
        except Error as error:
            raise without_frames(error) from error.__cause__
        try:
            found.run(matcher.memories, matcher.scalars, self.kernel.__name__)
        except LaunchError as error:
            raise without_frames(error) from error.__cause__
        if not kwargs:
            fast.remember(self.grid, args, found, matcher)

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Prepared, Matcher]:
        kernel = self.kernel
        arguments = kernel.bind_arguments(args, kwargs)
        assert self.grid is not None
        return prepare(
            kernel.__name__,
            kernel.annotations,
            arguments,
            self.grid,
            kernel.settings,
            kernel.specialisations,
        )

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], None]:
        """A callable without arguments that launches with these; checks are done now.

        Arrays must keep their memory; numbers are fixed.
        """
        try:
            found, matcher = self._prepare(args, kwargs)
        except Error as error:
            raise without_frames(error) from error.__cause__
        name = self.kernel.__name__
        memories, scalars = matcher.memories, matcher.scalars
        return lambda: found.run(memories, scalars, name)

    def occupancy(self, *args: Any, **kwargs: Any) -> Occupancy:
        """How many cubes of this launch a multiprocessor holds at once, and what bounds them.

        Takes what a launch takes; the kernel is compiled for it, and not launched. GPUs of NVIDIA
        tell; `UnsupportedError` E310 on other devices.
        """
        try:
            found, _ = self._prepare(args, kwargs)
            return _occupancy(found.device, found.compiled.loaded)
        except Error as error:
            raise without_frames(error) from error.__cause__

    def inspect(
        self,
        *args: Any,
        target: str = "cpu",
        stage: str | None = None,
        comptime: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> str:
        """See `CubeKernel.inspect`."""
        try:
            named = {n: _as_spec(v) for n, v in kwargs.items()} | (comptime or {})
            arguments = self.kernel.bind_arguments(tuple(_as_spec(a) for a in args), named)
            return self._text(arguments, target, stage)
        except Error as error:
            raise without_frames(error) from error.__cause__

    def _text(self, arguments: dict[str, Any], target: str, stage: str | None) -> str:
        found = resolve_target(target)
        if stage is None:
            stage = "llvm" if found.kind == "cpu" else "source"
        stages = ("ir", *find_compiler(found.kind).stages)
        if stage not in stages:
            raise fail("E502", target=target, stage=stage, stages=", ".join(stages))
        signature = self._signature_of(arguments, found)
        return self.kernel.specialisations.text(signature, found, stage)

    def _signature_of(self, arguments: dict[str, Any], target: Target) -> Signature:
        kernel = self.kernel
        matcher = Matcher(kernel.__name__, kernel.annotations)
        items = matcher.match(arguments)
        plane = kernel.settings.plane_dim or target.plane_dim
        width = line_width(matcher.tensors, target, kernel.settings.line_size)
        dim = default_cube_dim(self.grid, plane)
        checked, cluster = kernel.settings.is_checked, kernel.settings.cluster
        arguments_ = finish(items, matcher, width, False)
        return Signature(arguments_, dim, plane, True, checked, cluster)


def _occupancy(device: Any, loaded: Any) -> Occupancy:
    if not hasattr(device, "occupancy"):
        reason = "only CUDA's driver tells it"
        raise fail("E310", op="occupancy", target=device.name, reason=reason, suggestion="")
    return device.occupancy(loaded)


def without_frames(error: Error) -> Error:
    """The error without the frames of the compiler, which tell users nothing."""
    return error.with_traceback(None)


def _as_spec(value: Any) -> Any:
    """Text that describes an argument becomes a `Spec`; other strings stay comptime values."""
    if isinstance(value, Spec) or not isinstance(value, str):
        return value
    return spec(value)


def resolve_target(text: str) -> Target:
    """The target of a name; `cpu` is this host."""
    if not isinstance(text, str):
        raise fail("E503", target=repr(text), suggestion='write a name, such as "cpu" or "opencl"')
    return find_device("cpu").target if text == "cpu" else parse_target(text)


@overload
def cube(function: Callable[..., Any]) -> Any: ...
@overload
def cube(function: None = None) -> Callable[[Callable[..., Any]], Any]: ...
def cube(function: Any = None) -> Any:
    """Make a function a kernel, or a helper that kernels call; nothing is compiled yet."""
    if function is None:
        return cube
    if not callable(function) or not hasattr(function, "__code__"):
        raise TypeError("@cube decorates Python functions")
    _resolve_local_names(function, sys._getframe(1).f_locals)
    return CubeKernel(function)


def _resolve_local_names(function: Any, names: dict[str, Any]) -> None:
    """Postponed annotations that name locals of the scope around, which nothing else keeps."""
    for parameter, annotation in list(function.__annotations__.items()):
        if isinstance(annotation, str):
            with suppress(Exception):  # what is defined later is resolved at the first launch
                found = eval(annotation, function.__globals__, names)
                function.__annotations__[parameter] = found
