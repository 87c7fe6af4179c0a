"""What `configure` takes: how each value is checked, and what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeGuard

import numpy as np

from cubepy.array.streams import queue_of
from cubepy.errors import Error, fail
from cubepy.jit.grid import checked_amount, checked_cluster
from cubepy.options import Options
from cubepy.record import dataclass
from cubepy.targets import PLANE_DIMS


@dataclass(frozen=True, slots=True)
class Settings:
    """Where `configure` chose to launch; what it chose about code are `Options`."""

    device: str | None = None
    queue: int | None = None
    stream: Any = field(default=None, compare=False)
    """What `queue` is the handle of, which lives as long as it may be launched in."""


def changed(settings: Settings, options: Options, **given: Any) -> tuple[Settings, Options]:
    """Settings and options with those of `given` that are not None, checked."""
    found = {n: CHECKS[n](v) for n, v in given.items() if v is not None}
    if "stream" in found:
        found |= {"queue": found["stream"], "stream": given["stream"]}  # kept, so that it lives
    if found.get("cluster") == (1, 1, 1):
        found["cluster"] = None
    names = {f.name for f in fields(Options)}
    chosen = {n: v for n, v in found.items() if n in names}
    rest = {n: v for n, v in found.items() if n not in names}
    return replace(settings, **rest), replace(options, **chosen)


def unknown_setting(kernel: str, unknown: Mapping[str, Any], known: Iterable[str]) -> Error:
    """E406 for keywords that name no setting, with the one that is spelled most like the first."""
    from cubepy.frontend.suggest import closest  # an error needs it, a launch does not

    name = next(iter(unknown))
    hint = closest(name, known) or f"settings are {', '.join(known)}"
    return fail(
        "E406", kernel=f"{kernel}.configure", reason=f"there is no setting `{name}`", hint=hint
    )


def _device_name(device: Any) -> str:
    name = getattr(device, "name", device)
    if not isinstance(name, str):
        suggestion = 'pass a name, such as "cpu", or what cp.device(name) gives'
        raise fail("E501", name=repr(device), suggestion=suggestion)
    return name


def _switch(name: str) -> Callable[[Any], bool]:
    """What checks a setting that is on or off."""

    def checked(value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise fail("E420", name=name, value=value, reason="it is True or False")
        return bool(value)

    return checked


def _checked_choice(choice: Any) -> bool | str:
    if isinstance(choice, bool) or (isinstance(choice, str) and choice == "auto"):
        return choice
    raise fail("E420", name="vectorise", value=choice, reason='it is "auto", True or False')


def _checked_plane(plane_dim: Any) -> int:
    if not _is_number(plane_dim) or plane_dim not in PLANE_DIMS:
        reason = f"it is a power of two up to {PLANE_DIMS[-1]}"
        raise fail("E420", name="plane_dim", value=plane_dim, reason=reason)
    return plane_dim


def _checked_width(line_size: Any) -> int | str:
    if isinstance(line_size, str) and line_size == "auto":
        return line_size
    if _is_number(line_size) and 1 <= line_size <= 256:
        return line_size
    raise fail("E420", name="line_size", value=line_size, reason='it is "auto" or 1 to 256 lanes')


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "line_size": _checked_width,
    "plane_dim": _checked_plane,
    "device": _device_name,
    "checked": _switch("checked"),
    "stream": queue_of,
    "cluster": checked_cluster,
    "registers": checked_amount("registers", 16, 255),
    "cubes_per_sm": checked_amount("cubes_per_sm", 1, 32),
    "fast_math": _switch("fast_math"),
    "contract": _switch("contract"),
    "vectorise": _checked_choice,
}
"""What checks the value of each setting."""
