"""`@cube`, kernels and launchers: what users hold and call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import Parameter
from operator import is_
from threading import RLock
from time import perf_counter_ns
from typing import Any, Never, overload

from cubepy.array.graphs import is_recording, record
from cubepy.compilers.registry import find_compiler
from cubepy.errors import Error, LaunchError, fail
from cubepy.forks import at_fork
from cubepy.frontend.signature import Signature
from cubepy.jit.arguments import Matcher, finish, is_struct, line_width, wrong_arguments
from cubepy.jit.bound import Bound
from cubepy.jit.bounded import make_room
from cubepy.jit.classes import promised
from cubepy.jit.compile import Specialisations
from cubepy.jit.fast import FastPath
from cubepy.jit.grid import (
    Dim3,
    Fixed,
    Grid,
    Over,
    check_limits,
    default_cube_dim,
    fixed,
)
from cubepy.jit.launch import Prepared, over, prepare
from cubepy.jit.method import MethodKernel
from cubepy.jit.native import NativeLaunches, header_of
from cubepy.jit.settings import CHECKS, Settings, changed, unknown_setting
from cubepy.lang.annotations import Comptime, ComptimeAnnotation, Spec, resolve_annotations, spec
from cubepy.lang.function import CubeFunction
from cubepy.lang.postponed import annotations_of
from cubepy.lang.postponed import signature_of as read_signature
from cubepy.options import Options
from cubepy.runtimes.base import Occupancy
from cubepy.runtimes.native.launching.callables import Base
from cubepy.runtimes.registry import find_device
from cubepy.targets import Target, parse_target

MAX_CONFIGURED = 64
"""Configured forms of a kernel that are kept, so that asking for one again costs a look-up."""


_READING = RLock()  # taken by who reads a function's parameters again
at_fork(_READING)
MAX_LAUNCHERS = 4096
"""Launchers of a kernel that are kept."""
_COMPTIME_OWNER = "a method of a comptime object"
"""What tells the key of a kernel in `_configured` whose first parameter is such an object."""


class CubeKernel(CubeFunction):
    """A function of the kernel language: launched with a grid, or called by other kernels.

    `kernel[cube_count, cube_dim](...)`, `kernel.over(what)(...)`; see the methods. Native code,
    once there is some, finds both in `_launchers` and `_covers`, notes the last grid of numbers and
    its launcher, and puts launchers over arrays in front of `_table`.
    """

    __slots__ = ("_covers", "_launchers", "_recent", "_recent_grid", "_table")

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Settings | None = None,
        options: Options | None = None,
        family: CubeKernel | None = None,
        has_comptime_owner: bool = False,
    ) -> None:
        super().__init__(function)
        self._has_comptime_owner = has_comptime_owner
        self.settings = settings or Settings()
        self.options = options or Options()
        self.made: dict[Any, Specialisations] = {} if family is None else family.made
        self._configured: dict[Any, CubeKernel] = {} if family is None else family._configured
        self.fast: FastPath | None = None
        self.native: NativeLaunches | None = None
        self._read_parameters()

    def _read_parameters(self) -> None:
        """Take the function's parameters as they are now."""
        header = header_of(self.function)
        self.signature = read_signature(self.function, follow_wrapped=False)
        self._annotations: dict[str, Any] | None = None
        self.parameters = tuple(self.signature.parameters)
        self.fast = None
        self.native = NativeLaunches(self, header)
        self._launchers: dict[Any, Launcher] = {}
        self._covers: dict[Any, Launcher] = {}
        self._table = self._recent_grid = self._recent = None
        self._header = header  # last: other threads compare it, and take the rest

    @property
    def annotations(self) -> dict[str, Any]:
        """The parameters' annotations as objects."""
        if self._annotations is None:
            found = resolve_annotations(self.function)
            if self._has_comptime_owner:
                found = {self.parameters[0]: Comptime[Any]} | found
            self._annotations = {n: self._with_default(n, a) for n, a in found.items()}
        return self._annotations

    def _with_default(self, name: str, annotation: Any) -> Any:
        """The annotation of a comptime parameter with its default."""
        parameter = self.signature.parameters.get(name)
        if parameter is None or parameter.default is Parameter.empty:
            return annotation
        if not isinstance(annotation, ComptimeAnnotation):
            return annotation
        return replace(annotation, default=(parameter.default,))

    @property
    def specialisations(self) -> Specialisations:
        """The compiled forms under these options and the settings in force."""
        options = self.options.in_force()
        found = self.made.get(options)
        if found is None:
            found = self.made.setdefault(options, Specialisations(self.function, options))
        return found

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        """The kernel as a method of `owner`; of a class, the kernel itself."""
        if owner is None:
            return self
        return MethodKernel(self if is_struct(owner) else self._of_comptime_owner(), owner)

    def __reduce__(self) -> Any:
        """By its name, as functions are; configured, by that of its function and by how; one that
        is tuned or a method, by what it was made from."""
        named = found_by_name(self.function)
        if not isinstance(named, CubeKernel) and getattr(named, "__wrapped__", None) is self:
            return getattr, (named, "__wrapped__")
        kernel = named if isinstance(named, CubeKernel) else getattr(named, "__wrapped__", None)
        if not isinstance(kernel, CubeKernel) or kernel.function is not self.function:
            return self.function.__qualname__
        if self._has_comptime_owner:
            how = self.settings, self.options
            is_named = how == (kernel.settings, kernel.options)
            return CubeKernel._of_comptime_owner, (kernel if is_named else kernel._with(*how),)
        if kernel is not self:
            return CubeKernel._with, (kernel, self.settings, self.options)
        return self.function.__qualname__

    def __copy__(self) -> CubeKernel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CubeKernel:
        return self

    def _of_comptime_owner(self) -> CubeKernel:
        """The same kernel, whose first parameter is comptime unless it is annotated."""
        key = (_COMPTIME_OWNER, self.settings, self.options)
        found = self._configured.get(key)
        if found is None:
            found = CubeKernel(self.function, self.settings, self.options, self, True)
            found = self._configured.setdefault(key, found)
        return found

    def __getitem__(self, grid: Any) -> Launcher:
        """A launcher over `kernel[cube_count, cube_dim]`, each an int or a tuple of up to three."""
        try:
            found = Launcher(self, fixed(grid))
        except Error as error:
            raise without_frames(error) from error.__cause__
        self._keep(self._launchers, grid, found)
        return found

    def over(self, what: Any, *, per: str = "unit", cube_dim: Any = None) -> Launcher:
        """A launcher with enough cubes for `what`: an array, an int or a shape (last axis on X).

        `per` says what serves one item: a "unit", a "plane" or a "cube". `cube_dim` defaults to 256
        units. An array that is given to a line-typed parameter counts in lines.
        """
        try:
            found = Launcher(self, over(what, per, cube_dim))
        except Error as error:
            raise without_frames(error) from error.__cause__
        if per == "unit" and cube_dim is None:
            self._keep(self._covers, what, found)
        return found

    def _keep(self, launchers: dict[Any, Launcher], numbers: Any, launcher: Launcher) -> None:
        """Keep a launcher, which holds the kernel, of one that is launched more than once."""
        if self.native is not None and self.native.has_launched:
            _keep(launchers, numbers, launcher)

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
        vectorise: bool | str | None = None,
        cluster: Any = None,
        registers: int | None = None,
        cubes_per_sm: int | None = None,
        **unknown: Never,
    ) -> CubeKernel:
        """The same kernel with other settings, used in the same way.

        `line_size`: lanes of line-typed tensors, or "auto". `plane_dim`: emulate planes of this
        size. `fast_math`: allow reassociation, reciprocals and ignoring the sign of zero.
        `device`: run there; host arrays are copied to it and back. `stream`: a `cp.Stream`, or
        torch's, CuPy's, Numba's or PyCUDA's; the launch joins it. `contract`: fuse a*b+c (on by
        default). `checked`: test every access, `assert` and integer
        division; the first fault of a launch is raised. `cluster`: cubes along each axis that run
        together on CUDA devices from sm_90 on, at most 8; see `cp.cuda.cluster_rank`. `registers`:
        at most so many for a unit; `cubes_per_sm`: so many cubes must fit on a multiprocessor. Both
        are hints to the compilers of GPUs. `vectorise`: on CPUs run units as lanes of lines, under
        masks where their control flow differs; "auto" does so where LLVM cannot. E406 for others.
        """
        if unknown:
            raise unknown_setting(self.__name__, unknown, CHECKS)
        given = {name: value for name, value in locals().items() if name in CHECKS}
        try:
            return self._with(*changed(self.settings, self.options, **given))
        except Error as error:
            raise without_frames(error) from error.__cause__

    def _with(self, settings: Settings, options: Options) -> CubeKernel:
        """The kernel of these settings; one object for all who ask, so that it is launched fast."""
        key = (settings, options, id(settings.stream))  # no other has that id: the kernel keeps it
        found = self._configured.get(key)
        if found is None:
            make_room(self._configured, MAX_CONFIGURED)
            found = self._configured.setdefault(
                key, CubeKernel(self.function, settings, options, self)
            )
        return found

    def inspect(
        self,
        *args: Any,
        target: str = "cpu",
        stage: str | None = None,
        comptime: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> str:
        """The text of a stage, from real arguments or specifications such as "f32[1024]".

        Stages: "ir"; "llvm", "asm" and "remarks" on CPUs. No device is needed.
        """
        return Launcher(self, None).inspect(
            *args, target=target, stage=stage, comptime=comptime, **kwargs
        )

    def signature_of(
        self, arguments: dict[str, Any], target: Target, grid: Grid | None
    ) -> Signature:
        """What is compiled for arguments, or specifications of them, where nothing is launched."""
        matcher = Matcher(self.__name__, self.annotations)
        items = matcher.match(arguments)
        options = self.options
        plane = options.plane_dim or target.plane_dim
        width = line_width(matcher.tensors, target, options.line_size)
        dim = default_cube_dim(grid, plane)
        check_limits(self.__name__, Fixed((1, 1, 1), dim), target)
        checked, attributes = options.is_checked, options.attributes_on(target)
        alignment = self.specialisations.alignment(target)
        found = finish(items, matcher, width, alignment, False)
        signature = Signature(found, dim, plane, True, checked, attributes)
        facts = self.specialisations.facts(signature, target)
        count = _nominal_count(grid, facts.uses_axes)
        return promised(signature, matcher, facts, count, alignment)

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, with defaults; `LaunchError` E406 where they do not match."""
        if not self._is_as_read():
            with _READING:
                if not self._is_as_read():
                    self._read_parameters()  # a reloader gave the function another
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            reason = _misspelt(self.signature.parameters, kwargs) or error
            raise wrong_arguments(self.__name__, reason, self.signature) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _is_as_read(self) -> bool:
        """Whether the function's parameters are those that were read."""
        return all(map(is_, header_of(self.function), self._header))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Kernels run over a grid; a call without one is a mistake outside of kernels."""
        raise fail("E409", kernel=self.__name__)

    def __repr__(self) -> str:
        return f"<cube function {self.__qualname__}>"


def found_by_name(function: Any) -> Any:
    """What stands where a function says that it was defined; None where there is nothing."""
    named: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        named = getattr(named, name, None)
    return named


def _keep(launchers: dict[Any, Launcher], numbers: Any, launcher: Launcher) -> None:
    """Keep a launcher whose grid is of numbers alone, to be found by them."""
    parts = numbers if type(numbers) is tuple else (numbers,)
    if not all(type(n) is int for p in parts for n in (p if type(p) is tuple else (p,))):
        return
    make_room(launchers, MAX_LAUNCHERS)
    launchers[numbers] = launcher


def _misspelt(parameters: Mapping[str, Parameter], keywords: dict[str, Any]) -> TypeError | None:
    """What is wrong with a keyword that no parameter has; Python names first what lacks then."""
    if any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    unknown = next((name for name in keywords if name not in parameters), None)
    return None if unknown is None else TypeError(f"there is no parameter `{unknown}`")


class Launcher(Base):
    """A kernel and a grid. Calling it launches; `bind` keeps the arguments.

    Once a kernel was launched some times, calls go to native code, which knows them from `_table`,
    `_what` and `_cells`; see `jit.native`. What it does not know is launched by `__call__`.
    """

    __slots__ = ("__weakref__", "_cells", "_grid", "_table", "_what", "kernel")

    def __init__(self, kernel: Any, grid: Grid | None) -> None:
        self.kernel = kernel
        self._grid = grid
        self._table: Any = None
        self._what: Any = None
        self._cells: bytes | None = None
        if kernel.native is not None:
            kernel.native.attach(self)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with these arguments; returns when NumPy and CPU torch arrays are written."""
        if is_recording():
            record(self.bind(*args, **kwargs))
            return
        fast = self.kernel.fast or self._fast_path()
        if not kwargs and fast.launch(self.grid, args):
            return
        found, matcher = self._prepared(args, kwargs)
        began = perf_counter_ns()
        try:
            found.run(matcher.memories, matcher.scalars, self.kernel.__name__)
        except LaunchError as error:
            raise without_frames(error) from error.__cause__
        took, native = perf_counter_ns() - began, self.kernel.native
        if not (native and native.learn(self, found, matcher, took)) and not kwargs:
            fast.remember(self.grid, args, found, matcher)

    @property
    def grid(self) -> Grid | None:
        """How many cubes there are."""
        if self._grid is None and self._what is not None:
            self._grid = Over(self._what)
        return self._grid

    def __reduce__(self) -> Any:
        return Launcher, (self.kernel, self.grid)

    def _fast_path(self) -> FastPath:
        try:
            return FastPath.of(self.kernel)
        except Error as error:  # of annotations
            raise without_frames(error) from error.__cause__

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Prepared, Matcher]:
        try:
            return self._prepare(args, kwargs)
        except Error as error:
            raise without_frames(error) from error.__cause__

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

        A launch takes the arrays as they are then: their memory, shape, flags and stream are read
        again, and so are fields of dataclasses, captured names and the settings. Numbers are fixed.
        """
        try:
            return Bound(self, self._prepared, args, kwargs)
        except Error as error:
            raise without_frames(error) from error.__cause__

    def occupancy(self, *args: Any, **kwargs: Any) -> Occupancy:
        """How many cubes of this launch a multiprocessor holds at once, and what bounds them.

        Takes what a launch takes; the kernel is compiled for it, and not launched. Only
        GPUs of NVIDIA report it; `UnsupportedError` E310 on other devices.
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
            return self.text(arguments, target, stage)
        except Error as error:
            raise without_frames(error) from error.__cause__

    def text(self, arguments: dict[str, Any], target: str, stage: str | None) -> str:
        """The text of a stage for arguments by name."""
        found = resolve_target(target)
        if stage is None:
            stage = "llvm" if found.kind == "cpu" else "source"
        stages = ("ir", *find_compiler(found.kind).stages)
        if stage not in stages:
            raise fail("E502", target=target, stage=stage, stages=", ".join(stages))
        signature = self.kernel.signature_of(arguments, found, self.grid)
        return self.kernel.specialisations.text(signature, found, stage)


def _nominal_count(grid: Grid | None, uses_axes: bool) -> Dim3:
    """A cube count with the axes of the grid to come; nothing is launched."""
    if isinstance(grid, Fixed):
        return grid.count
    return (1, 2, 2) if uses_axes else (1, 1, 1)


def _occupancy(device: Any, loaded: Any) -> Occupancy:
    if not hasattr(device, "occupancy"):
        reason = "only CUDA's driver computes it"
        raise fail("E310", op="occupancy", target=device.name, reason=reason, suggestion="")
    return device.occupancy(loaded)


def without_frames(error: Error) -> Error:
    """The error without the frames of the compiler, which mean nothing to users."""
    return error.with_traceback(None)


def _as_spec(value: Any) -> Any:
    """Text that describes an argument becomes a `Spec`; other strings are comptime values."""
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
    """Make a function a kernel, or a helper that kernels call; nothing is compiled yet.

    `LaunchTypeError` E602, a `TypeError`, for what is no function that is written in Python.
    """
    if function is None:
        return cube
    if not callable(function) or not hasattr(function, "__code__"):
        raise _no_function(function)
    _resolve_local_names(function, sys._getframe(1).f_locals)
    return CubeKernel(function)


def _no_function(given: Any) -> Error:
    """E602 for what `cube` decorates in vain."""
    name = type(given).__name__
    kind = f"the class `{given.__name__}`" if isinstance(given, type) else f"a value of type {name}"
    hint = "decorate a function that is written with `def`"
    if isinstance(given, type):
        hint += "; kernels take frozen dataclasses as they are, and call their methods"
    elif name in _ABOVE:
        hint = f"write @{name} above @cp.cube"
    elif isinstance(given, CubeKernel):
        hint = "leave out one of the two @cp.cube"
    reason = f"it decorates Python functions, not {kind}"
    return fail("E602", function="@cp.cube", reason=reason, suggestion=hint)


_ABOVE = ("staticmethod", "classmethod", "property")
"""What else decorates methods."""


def _resolve_local_names(function: Any, names: dict[str, Any]) -> None:
    """Postponed annotations that name locals of the scope around, which nothing else keeps."""
    for parameter, annotation in annotations_of(function).items():
        if isinstance(annotation, str):
            with suppress(Exception):  # what is defined later is resolved at the first launch
                found = eval(annotation, function.__globals__, names)
                function.__annotations__[parameter] = found
