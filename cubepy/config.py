"""The settings table: every `CUBEPY_*` variable, its type, default and meaning.

The only module that reads the environment. `settings(...)` overrides values for a `with` block.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any

import cubepy.forks  # noqa: F401 - forks wait for imports from now on
from cubepy.errors import Error, fail
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `parse` turns the text of the environment into the value."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    doc: str

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return f"CUBEPY_{self.name.upper()}"


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("expected 0 or 1")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("expected a positive number")
    return value


def _threads(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1024:
        raise ValueError("expected 1 to 1024 threads")
    return value


def _level(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 3:
        raise ValueError("expected 0 to 3")
    return value


def _tuning(text: str) -> str:
    if text not in ("off", "quick", "full"):
        raise ValueError("expected off, quick or full")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


_STAGES = ("ir", "llvm", "asm", "remarks", "source", "passes")


def _stages(text: str) -> tuple[str, ...]:
    """Stages by name; those behind a pass are known to the compilers alone."""
    found = _words(text)
    for word in found:
        if word not in _STAGES and not word.startswith("after:"):
            raise ValueError(
                f"there is no stage `{word}`; stages: {', '.join(_STAGES)}, after:<pass>"
            )
    return found


def _user_cache() -> str:
    """The system's place for caches; the package `platformdirs` would add 5 ms to each start."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(os.path.expanduser(base), "cubepy")


TABLE: tuple[Setting, ...] = (
    Setting("device", str, "cpu", "where cp.empty, cp.asarray and friends place arrays"),
    Setting("num_threads", _threads, None, "threads of the CPU device; default: usable cores"),
    Setting("checked", _flag, False, "check every access of every kernel"),
    Setting("dump", _stages, (), f"stages to print on stderr: {', '.join(_STAGES)}, after:<pass>"),
    Setting("opt_level", _level, 2, "LLVM optimisation level of the CPU compiler, 0 to 3"),
    Setting("scratch_bytes", _positive, 64 << 20, "most bytes of a cube's memory on a CPU"),
    Setting("cache_dir", str, _user_cache(), "the folder of files that are kept between runs"),
    Setting("cache", _flag, True, "keep compiled code and measurements on disk"),
    Setting("cache_bytes", _positive, 1 << 29, "most bytes of compiled code on disk"),
    Setting("tune", _tuning, None, "the autotuner's level: off, quick or full; see cp.tuning"),
    Setting("self_test", _flag, True, "test each version of CUDA's compiler once"),
    Setting("pool_bytes", _positive, None, "most bytes kept for reuse by the array pool"),
)

_ROWS = {row.name: row for row in TABLE}
_chosen: dict[str, Any] = {}
_read: dict[str, Any] = {}
"""What the environment says, as far as anybody asked."""
overrides: ContextVar[dict[str, Any] | None] = ContextVar("cubepy_settings", default=None)
"""What `settings` chose in this context; the dictionary of a block is never changed."""
generation = array("q", [0])
"""Another number after each `choose`: native launches compare it."""
_counted = count(1)


def get(name: str) -> Any:
    """The value in force: a `settings(...)` block, else the environment, else the default."""
    chosen = overrides.get()
    if chosen and name in chosen:
        return chosen[name]
    if name in _chosen:
        return _chosen[name]
    return _read[name] if name in _read else _from_environment(_ROWS[name])


def choose(name: str, value: Any) -> None:
    """Set a value for the whole process; `settings(...)` blocks still override it."""
    _chosen[name] = value
    generation[0] = next(_counted)  # one step, so that threads never write one number twice


VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
"""The variable by which NVIDIA's driver selects the GPUs of a process."""


def visible_gpus() -> list[str] | None:
    """The GPUs selected for this process, by the driver's names; None if all."""
    found = os.environ.get(VISIBLE_GPUS)
    return None if found is None else [name for name in found.split(",") if name]


def forget_unknown_width() -> None:
    """Take COLUMNS=0 away, by which some programs say that they know no width: Rich prints nothing
    then."""
    if os.environ.get("COLUMNS") == "0":
        del os.environ["COLUMNS"]


def source(name: str) -> str:
    """Where the value in force comes from: "settings", "environment" or "default"."""
    if name in (overrides.get() or {}) or name in _chosen:
        return "settings"
    return "environment" if os.environ.get(_ROWS[name].variable) else "default"


def _from_environment(row: Setting) -> Any:
    """The environment is read once: launches ask for settings all the time.

    An empty variable counts as one that is not set.
    """
    text = os.environ.get(row.variable)
    found = _parse(row, row.variable, text) if text else row.default
    return _read.setdefault(row.name, found)


def _parse(row: Setting, name: str, text: str) -> Any:
    """The value that a text gives; E506, which calls the setting `name`, where it gives none."""
    try:
        return row.parse(text)
    except ValueError as error:
        raise fail("E506", name=name, value=text, reason=error) from None


@contextmanager
def settings(**values: Any) -> Iterator[None]:
    """Override settings inside a `with` block, as in `with cp.settings(checked=True):`.

    Names are those of the table without the `CUBEPY_` prefix, in lower case; an unknown name is
    `LaunchTypeError` E406, a `TypeError`. Overrides are per context (thread or task), which
    free-threaded Python hands on to the threads that are started inside the block.
    """
    for name in values:
        if name not in _ROWS:
            raise _unknown(name)
    for name, value in values.items():
        if isinstance(value, int | str):
            _parse(_ROWS[name], name, str(value))
        elif isinstance(value, tuple):
            _parse(_ROWS[name], name, ",".join(map(str, value)))
    token = overrides.set({**(overrides.get() or {}), **values})
    try:
        yield
    finally:
        overrides.reset(token)


def _unknown(name: str) -> Error:
    """E406 for a name that is no setting, with the one that is spelled most like it."""
    import difflib  # an error needs it, a launch does not

    found = difflib.get_close_matches(name, _ROWS, 1)
    hint = f"did you mean `{found[0]}`?" if found else f"settings are {', '.join(_ROWS)}"
    return fail("E406", kernel="cp.settings", reason=f"there is no setting `{name}`", hint=hint)
