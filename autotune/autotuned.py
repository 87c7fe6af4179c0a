"""`@autotuned`: functions and kernels that are called with a configuration that suits the call."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from cubepy import config
from cubepy.autotune import session
from cubepy.autotune.description import PLAIN
from cubepy.autotune.guarding import TunedCall
from cubepy.autotune.measure import can_tune
from cubepy.autotune.session import QUICK, Tuning, current, is_searching
from cubepy.autotune.signature import arrays_of, default_key, device_of, layouts, signature
from cubepy.autotune.space import Config, canonical_text, configurations, ranked
from cubepy.errors import fail
from cubepy.jit.bounded import make_room
from cubepy.jit.kernel import CubeKernel, found_by_name
from cubepy.record import dataclass
from cubepy.runtimes.registry import find_device

if TYPE_CHECKING:
    from cubepy.autotune.tuner import Choice

MOST_LAUNCHERS = 256
"""Launchers of a tuned kernel that are kept, so that asking for one again costs a look-up."""
LIMIT = 4096
"""Signatures and problems that are kept; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The configuration of a signature, as long as the same tuning and settings are in force."""

    config: Any
    changes: int
    tuning: Tuning
    overrides: Any


class Autotuned(TunedCall):
    """A function with a space of configurations; calling it picks one and passes it on.

    `configs`: all members of the space; `pick(...)` gives the one that a call would use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        space: Any,
        key: Callable[..., Any] | None,
        valid: Callable[..., Any] | None,
        priority: Callable[..., Any] | None,
        reference: Mapping[str, Any] | None,
        rtol: float | None,
        name: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.configs = configurations(space)
        self._key, self._valid, self._priority = key, valid, priority
        self._reference = None if reference is None else Config(reference)
        if self._reference is not None and self._reference not in self.configs:
            raise TypeError(f"the reference {reference!r} is not in the space")
        self._rtol = rtol
        self._name = name or f"{_module_of(function)}.{function.__qualname__}"
        self._entries: dict[Any, Entry] = {}
        self._choices: dict[Any, tuple[Any, Choice]] = {}

    def __get__(self, owner: Any, cls: Any = None) -> Any:
        """The function as a method of `owner`."""
        return self if owner is None else MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the configuration for these arguments."""
        key = signature(args, kwargs)
        entry = self._entries.get(key)
        if entry is not None and _is_current(entry):
            chosen = entry.config
            if not kwargs:
                self.learn(key, args, self.function, {"config": chosen})
        else:
            chosen = self._resolve(key, args, kwargs, self._run)
        return self.function(*args, config=chosen, **kwargs)

    def pick(self, *args: Any, **kwargs: Any) -> Config:
        """The configuration for these arguments, found now if it is not known yet."""
        key = signature(args, kwargs)
        entry = self._entries.get(key)
        if entry is not None and _is_current(entry):
            return entry.config
        return self._resolve(key, args, kwargs, self._run)

    def __reduce__(self) -> Any:
        """By its name, as functions are."""
        return self.function.__qualname__

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], chosen: Any) -> Any:
        return self.function(*args, config=chosen, **kwargs)

    def _resolve(
        self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Any, extra: str = ""
    ) -> Config:
        """Find the configuration of a signature and keep it; `key` None: for this call alone."""
        changes = session.changes[0]
        chosen = self._choose(args, kwargs, run, extra)
        if is_searching() or key is None:
            return chosen
        make_room(self._entries, LIMIT)
        self._entries[key] = Entry(chosen, changes, current.get(), config.overrides.get())
        return chosen

    def _choose(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], run: Any, extra: str
    ) -> Config:
        from cubepy.autotune.candidates import CallCandidates  # what searches need is loaded late
        from cubepy.autotune.tuner import Request, choose

        arrays = arrays_of(args, kwargs)
        device = find_device(device_of(arrays))
        found = self._key(*args, **kwargs) if self._key else default_key(args, kwargs)
        legal = ranked(self.configs, device.target, found, self._valid, self._priority)
        if not legal:
            reason = f"no configuration is valid for the problem {found!r}"
            raise fail("E603", function=self.function.__name__, reason=reason)
        if not can_tune(device):
            return legal[0]
        if config.get("checked"):
            return legal[0]
        problem = self._problem(found, [layouts(arrays), extra])
        texts = [c.text for c in legal]
        judge = self._judge(legal)
        source = self._hash()
        request = Request(self._name, source, problem, device, texts, QUICK, judge)

        def make() -> CallCandidates:
            return CallCandidates(run, legal, texts, (args, kwargs), judge, self._rtol)

        memo = (source, problem, tuple(texts), device.name)
        state = (
            session.changes[0],
            current.get(),
            config.get("tune"),
            config.get("cache"),
            config.get("cache_dir"),
        )
        kept = self._choices.get(memo)
        if kept is not None and kept[0] == state:
            return legal[kept[1].index]
        choice = choose(request, make)
        if not is_searching():
            make_room(self._choices, LIMIT)
            self._choices[memo] = (state, choice)
        return legal[choice.index]

    def _problem(self, found: Any, rest: list[Any]) -> str:
        """The canonical text of what `key` gave, with the rest."""
        try:
            return canonical_text([found, *rest])
        except TypeError as error:
            name = self.function.__name__
            raise TypeError(f"the key of `{name}` cannot be remembered: {error}") from None

    def _judge(self, legal: tuple[Config, ...]) -> int:
        """The position of the reference: as given, else the first valid one of the space."""
        if self._reference in legal:
            return legal.index(self._reference)
        return min(range(len(legal)), key=lambda k: self.configs.index(legal[k]))

    def _hash(self) -> str:
        """What the function is made of now: what it names may have changed since the last pick. It
        takes tenths of a millisecond, so signatures that have one are called without it."""
        from cubepy.autotune.sources import source_of

        function = self.function
        return source_of(function.function if isinstance(function, CubeKernel) else function)

    def __repr__(self) -> str:
        return f"<autotuned {self._name}, {len(self.configs)} configurations>"


def _module_of(function: Any) -> str:
    """The module of a function; of a script that runs, the name that it has for who imports it."""
    name = function.__module__
    if name != "__main__":
        return name
    main = sys.modules[name]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # python -m
        return spec.name
    return name if file is None else os.path.splitext(os.path.basename(file))[0]


def _is_current(entry: Entry) -> bool:
    """Whether nothing was chosen since that a pick depends on."""
    if entry.changes != session.changes[0]:
        return False
    return entry.tuning is current.get() and entry.overrides is config.overrides.get()


class AutotunedKernel(Autotuned):
    """A kernel with a space: `kernel[grid](...)` and `kernel.over(what)(...)` pick a configuration.

    A parameter `config` gets it whole; else each parameter that is named as an axis of the space
    gets its value. The axis `cube_dim` is that of `over`, and axes named as options of `configure`
    configure the kernel. A grid may be a function of the configuration.
    """

    def __init__(self, function: CubeKernel, *rest: Any, **options: Any) -> None:
        super().__init__(function, *rest, **options)
        self.kernel = function
        names = set(function.parameters)
        axes = {name for c in self.configs for name in c}
        options_known = set(inspect.signature(CubeKernel.configure).parameters) - {"self"}
        self._takes_whole = "config" in names
        rest_of = set() if self._takes_whole else axes - names - options_known - {"cube_dim"}
        if rest_of:
            raise TypeError(
                f"`{function.__name__}` has no parameter {', '.join(sorted(rest_of))} for its space"
            )
        self._options = axes & options_known - names
        self._arguments = axes & names
        self._launchers: dict[Any, TunedLauncher] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Kernels run over a grid: see `over`."""
        return self.kernel(*args, **kwargs)

    def __getitem__(self, grid: Any) -> TunedLauncher:
        """A launcher over `kernel[cube_count, cube_dim]`, or over what a function of the
        configuration gives for that."""
        make = grid if callable(grid) else lambda c: grid

        def launcher() -> TunedLauncher:
            return TunedLauncher(self, lambda kernel, c: kernel[make(c)], _text_of(grid))

        return self._kept(("[]", grid), launcher)

    def over(self, what: Any, *, per: str = "unit", cube_dim: Any = None) -> TunedLauncher:
        """As `CubeKernel.over`; `what` may be a function of the configuration."""

        def launcher(kernel: CubeKernel, c: Config, args: tuple[Any, ...] = ()) -> Any:
            dim = c.get("cube_dim", cube_dim)
            found = what(c) if callable(what) and not hasattr(what, "shape") else what
            return kernel.over(found, per=per, cube_dim=dim)

        text = f"{per} {cube_dim} {_text_of(what)}"
        if hasattr(what, "shape"):
            return TunedLauncher(self, launcher, text, what)
        key = what, per, cube_dim
        return self._kept(key, lambda: TunedLauncher(self, launcher, text, what))

    def configure(self, **options: Any) -> AutotunedKernel:
        """As `CubeKernel.configure`; an axis of the space comes before an option of its name."""
        return self._of(self.kernel.configure(**options))

    def __reduce__(self) -> Any:
        """By its name; configured, by that and by how."""
        named = found_by_name(self.kernel.function)
        is_same = isinstance(named, AutotunedKernel) and named is not self
        if is_same and named.kernel.function is self.kernel.function:
            return AutotunedKernel._of, (named, self.kernel)
        return super().__reduce__()

    def _of(self, kernel: CubeKernel) -> AutotunedKernel:
        """The same with the kernel configured otherwise."""
        return AutotunedKernel(
            kernel,
            self.configs,
            self._key,
            self._valid,
            self._priority,
            self._reference,
            self._rtol,
            self._name,
        )

    def inspect(self, *args: Any, **kwargs: Any) -> str:
        """As `CubeKernel.inspect`, in the first configuration; arguments may choose another."""
        return self.inspected(lambda kernel, _: kernel, args, kwargs)

    def _kept(self, key: Any, make: Callable[[], TunedLauncher]) -> TunedLauncher:
        """The launcher of a grid of numbers, or of one function, which is made once: not of what
        may hold arrays, which would live as long."""
        try:
            found = self._launchers.get(key)
        except TypeError:  # a list, or a function that has no hash
            return make()
        if found is None:
            if not all(map(_holds_values, key)):
                return make()
            make_room(self._launchers, MOST_LAUNCHERS)
            found = self._launchers.setdefault(key, make())
        return found

    def bound_to(self, launch: Callable[[CubeKernel, Config], Any], c: Config) -> Any:
        """The launcher of a configuration, and the keyword arguments that it is called with."""
        options = {name: c[name] for name in c if name in self._options}
        kernel = self.kernel.configure(**options) if options else self.kernel
        kwargs = {name: c[name] for name in c if name in self._arguments}
        if self._takes_whole:
            kwargs["config"] = c
        return launch(kernel, c), kwargs

    def inspected(self, launch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """A text in the first configuration, of which the caller may say another part."""
        launcher, more = self.bound_to(launch, self.configs[0])
        said = {*kwargs, *(kwargs.get("comptime") or {})}
        return launcher.inspect(*args, **{k: more[k] for k in more if k not in said}, **kwargs)


def _holds_values(x: Any) -> bool:
    """Whether something is a value that holds no array, or a function that captured such alone."""
    if not isinstance(x, FunctionType):
        return _is_value(x)
    try:
        captured = [cell.cell_contents for cell in x.__closure__ or ()]
    except ValueError:  # one has no value yet
        return False
    defaults = *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()
    return not vars(x) and all(map(_is_value, (*captured, *defaults)))


def _is_value(x: Any) -> bool:
    if type(x) is tuple:
        return all(map(_is_value, x))
    return type(x) in PLAIN or isinstance(x, np.generic)


def _text_of(grid: Any) -> str:
    """What of a grid is part of the signature: its numbers, or an array's shape."""
    if callable(grid) and not hasattr(grid, "shape"):
        return "function"
    return repr(getattr(grid, "shape", grid))


class TunedLauncher(TunedCall):
    """A tuned kernel over a grid."""

    def __init__(self, tuned: AutotunedKernel, launch: Any, grid: str, what: Any = None) -> None:
        self._tuned, self._launch, self._grid = tuned, launch, grid
        self._what = what
        self._ready: dict[Any, tuple[Any, Any, dict[str, Any]]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with the configuration for these arguments."""
        key = signature(args, kwargs)
        found = self._ready.get(key)
        if found is None or not _is_current(found[0]):
            found = self._find(key, args, kwargs)
        elif not kwargs:
            self.learn(key, args, found[1], found[2])
        found[1](*args, **found[2], **kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], None]:
        """A callable without arguments that launches with these and their configuration."""
        c = self._pick(signature(args, kwargs), args, kwargs)
        launcher, more = self._tuned.bound_to(self._launch, c)
        return launcher.bind(*args, **more, **kwargs)

    def inspect(self, *args: Any, **kwargs: Any) -> str:
        """As `Launcher.inspect`, in the first configuration; arguments may choose another."""
        return self._tuned.inspected(self._launch, args, kwargs)

    def pick(self, *args: Any, **kwargs: Any) -> Config:
        """The configuration for these arguments, found now if it is not known yet."""
        return self._pick(signature(args, kwargs), args, kwargs)

    def _pick(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        full = None if key is None else (self._grid, key)
        entry = self._tuned._entries.get(full)
        if entry is not None and _is_current(entry):
            return entry.config
        return self._tuned._resolve(full, args, kwargs, self._candidate, self._grid_class())

    def _grid_class(self) -> str:
        """The grid's part of the problem; an array that is covered is among the arguments."""
        return self._grid if isinstance(self._what, int | tuple) else ""

    def _candidate(self, args: tuple[Any, ...], kwargs: dict[str, Any], c: Any) -> None:
        launcher, more = self._tuned.bound_to(self._launch, c)
        launcher(*args, **more, **kwargs)

    def _find(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        c = self._pick(key, args, kwargs)
        launcher, more = self._tuned.bound_to(self._launch, c)
        entry = self._tuned._entries.get((self._grid, key))
        if entry is None:
            return None, launcher, more
        make_room(self._ready, LIMIT)
        self._ready[key] = entry, launcher, more
        return self._ready[key]


def autotuned(
    function: Any = None,
    *,
    space: Any,
    key: Callable[..., Any] | None = None,
    valid: Callable[..., Any] | None = None,
    priority: Callable[..., Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    rtol: float | None = None,
) -> Any:
    """Let measurements pick a configuration of a launcher, or of a kernel under `@cp.cube`.

    `space`: a mapping of names to values, whose product is tried, or a list of mappings; the first
    is preferred. `key`: what a problem is, by metadata of the arguments (see `cp.anchor`); default:
    dtypes, layouts and extents rounded up to powers of two. `valid(config, target, problem)`: false
    for what must never run; asked again before a remembered pick is used. `priority(config,
    target, problem)`: what to try first; negative: not at all. `reference`: the configuration that
    the others must agree with, within `rtol`; default: the first valid one.

    A launcher gets the picked configuration as `config`. Candidates run on copies of the arguments;
    see `cp.tuning` for how long. `TypeError` for what is no space, `ValueError` for an `rtol` that
    is not from 0 on.
    """
    if rtol is not None and not rtol >= 0:
        raise ValueError(f"rtol is {rtol!r}; it is a number from 0 on")
    if function is None:
        return functools.partial(
            autotuned,
            space=space,
            key=key,
            valid=valid,
            priority=priority,
            reference=reference,
            rtol=rtol,
        )
    kind = AutotunedKernel if isinstance(function, CubeKernel) else Autotuned
    return kind(function, space, key, valid, priority, reference, rtol)
