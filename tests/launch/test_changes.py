"""What a kernel captures may change while it is traced, and while it runs: no later launch takes
what was compiled before."""

from __future__ import annotations

import linecache
import types
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.launch import Prepared


def test_a_name_that_changes_while_it_is_traced():
    """What was compiled of both values serves that launch alone, and is not taken for either."""
    n = 1

    def change() -> int:
        nonlocal n
        n += 1
        return 0

    @cp.cube
    def kernel(out):
        out[0] = n
        out[1] = change()
        out[2] = n

    out = np.zeros(3, np.float32)
    for _ in range(4):
        before = n
        kernel[1, 1](out)
        assert out[0] >= before and out[2] == out[0] + 1


def _change_name(held: Any, kernel: Any) -> None:
    held["n"] = 20.0


def _change_attribute(held: Any, kernel: Any) -> None:
    held["space"].n = 20.0


def _change_default(held: Any, kernel: Any) -> None:
    kernel.function.__defaults__ = (20.0,)


def _change_keyword(held: Any, kernel: Any) -> None:
    kernel.function.__kwdefaults__ = {"key": 20.0}


def _change_helper(held: Any, kernel: Any) -> None:
    held["helper"].__code__ = (lambda: 20.0).__code__


def _change_code(held: Any, kernel: Any) -> None:
    kernel.function.__code__ = held["other"].__code__


CHANGES = (
    _change_name,
    _change_attribute,
    _change_default,
    _change_keyword,
    _change_helper,
    _change_code,
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_while_a_kernel_runs(change: Any, monkeypatch: pytest.MonkeyPatch):
    """Another thread may change what was captured before the launch is learned by native code."""
    held: dict[str, Any] = {"space": types.SimpleNamespace(n=1.0)}
    source = (
        "def kernel(out, default=1.0, *, key=1.0):\n"
        "    out[0] = default + key + n + space.n + helper()\n"
        "def other(out, default=1.0, *, key=1.0):\n"
        "    out[0] = default + key + n + space.n + 20.0\n"
        "def helper():\n"
        "    return 1.0\n"
    )
    file = f"<{change.__name__}>"
    lines = list[str](source.splitlines(keepends=True))
    linecache.cache[file] = len(source), None, lines, file
    held["n"] = 1.0
    exec(compile(source, file, "exec"), held)
    kernel, out, run = cp.cube(held["kernel"]), np.zeros(1, np.float32), Prepared.run
    kernel[1, 1](out)

    def changing(self: Any, *args: Any) -> None:
        run(self, *args)
        change(held, kernel)

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "run", changing)
        kernel[1, 1](out)
    assert out[0] == 5
    for _ in range(3):
        kernel[1, 1](out)
        assert out[0] == 24


IS_SECOND = False


@cp.cube
def either(first, second):
    if IS_SECOND:
        second[0] = 1
    else:
        first[0] = 1


def test_what_changes_behind_the_checks(monkeypatch: pytest.MonkeyPatch):
    """Code that writes what was not checked to be writeable is not launched."""
    from cubepy.jit.compile import Specialisations

    first, second = np.zeros(3, np.float32), np.zeros(3, np.float32)
    second.flags.writeable = False
    get = Specialisations.get

    def change(*given: Any) -> Any:
        global IS_SECOND
        IS_SECOND = True
        return get(*given)

    monkeypatch.setattr(Specialisations, "get", change)
    with pytest.raises(cp.LaunchError, match="E404"):
        either[1, 1](first, second)
    assert not first.any() and not second.any()
