"""Code of the user that looks like a library's: its globals and objects may change all the same."""

import functools
import linecache
import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.lang.objects import is_fixed, is_fixed_class, is_fixed_function

TEXT = """
SCALE = 2.0

class Gain:
    shift = 1.0

    def __init__(self):
        self.value = 3.0

    def of(self, v):
        return v * self.value + self.shift

    def other(self, v):
        return v - self.shift

gain = Gain()

def scaled(v):
    return gain.of(v) * SCALE
"""
CHANGES = ("SCALE = 5.0", "gain.value = 7.0", "Gain.shift = 9.0", "Gain.of = Gain.other")
SCALE = 2.0


@cp.cube
def at_comptime(out, function: cp.Comptime):
    out[0] = function(3.0)


@cp.cube
def at_run_time(out, function: cp.Comptime):
    out[0] = function(out[1])


def check(function: Any) -> None:
    """Whether kernels give what Python gives now, also once launches are remembered."""
    for kernel in (at_comptime, at_run_time):
        for _ in range(4):
            out = np.array([0.0, 3.0])
            kernel[1, 1](out, function)
            assert out[0] == function(3.0)


def check_changes(names: dict[str, Any]) -> None:
    check(names["scaled"])
    for change in CHANGES:
        exec(change, names)
        check(names["scaled"])


def test_a_file_with_the_name_of_one_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "wave.py"
    file.write_text(TEXT)
    spec = spec_from_file_location("wave", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "wave", module)
    spec.loader.exec_module(module)
    assert not is_fixed("wave") and is_fixed("statistics")
    check_changes(vars(module))


def test_code_that_runs_in_no_module():
    lines: list[str] = list(TEXT.splitlines(keepends=True))
    linecache.cache["<cell>"] = len(TEXT), None, lines, "<cell>"
    names: dict[str, Any] = {}
    exec(compile(TEXT, "<cell>", "exec"), names)
    assert names["Gain"].__module__ == "builtins" and not is_fixed_class(names["Gain"])
    check_changes(names)


@functools.wraps(math.sqrt)
def wrapped(v):
    return v * SCALE


def test_a_function_that_names_the_module_of_another(monkeypatch: pytest.MonkeyPatch):
    assert wrapped.__module__ == "math" and not is_fixed_function(wrapped)
    check(wrapped)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    check(wrapped)


def test_what_is_fixed():
    for function in (math.sqrt, np.sum, functools.wraps, Path.exists, cp.kernels.matmul):
        assert is_fixed_function(function)
    for cls in (int, Path, np.ndarray, functools.partial):
        assert is_fixed_class(cls)
