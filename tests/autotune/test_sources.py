"""What counts of a tuned function: all that may change what it does."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.sources import source_of

KERNELS = """
import functools
import cubepy as cp

WEIGHTS = {"a": (1, 2)}

@cp.cube
def scale(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2

class Held:
    factor = 3

    @staticmethod
    def run(x, out):
        scale.over(out)(x, out)

    def call(self, x, out):
        scale.over(out)(x, out)

def deep(x, out):
    return inner(x, out)

def inner(x, out):
    scale.over(out)(x, out)

TABLE = {"one": [scale]}
CALLED = functools.partial(deep)
HELD = Held()
OTHER = 1
"""
LAUNCHERS = """
import logging
import numpy as np
import cubepy as cp
import kernels_of_test as kernels
from kernels_of_test import CALLED, HELD, TABLE, Held

def of_module(x, out, *, config):
    kernels.scale.over(cp.empty(3))(x, out)

def of_table(x, out, *, config):
    logging.debug("table")
    TABLE["one"][0].over(out)(x, out)

def of_static(x, out, *, config):
    np.empty(3)
    Held.run(x, out)

def of_partial(x, out, *, config):
    cp.empty(3)
    CALLED(x, out)

def of_object(x, out, *, config):
    cp.empty(3)
    HELD.call(x, out)

def of_data(x, out, *, config):
    cp.empty(len(kernels.WEIGHTS["a"]))

def of_class_data(x, out, *, config):
    cp.empty(Held.factor)

def of_function(x, out, *, config):
    cp.empty(3)
    kernels.deep(x, out)
"""
NAMES = ("of_module", "of_table", "of_static", "of_partial", "of_object", "of_function")


@pytest.fixture
def hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hashes of all launchers for a text of the kernels."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "launchers_of_test.py").write_text(LAUNCHERS)
    made = iter(range(100))

    def found(text: str) -> dict[str, str]:
        (tmp_path / "kernels_of_test.py").write_text(text + f"\n# {'x' * next(made)}\n")
        importlib.invalidate_caches()
        for name in ("launchers_of_test", "kernels_of_test"):
            sys.modules.pop(name, None)
        module = importlib.import_module("launchers_of_test")
        return {n: source_of(f) for n, f in vars(module).items() if n.startswith("of_")}

    yield found
    for name in ("launchers_of_test", "kernels_of_test"):
        sys.modules.pop(name, None)


def test_edits_count_wherever_they_are(hashes: Callable[[str], dict[str, str]]):
    before = hashes(KERNELS)
    assert hashes(KERNELS) == before
    edited = hashes(KERNELS.replace("x[i] * 2", "x[i] * 3"))
    assert set(NAMES) <= {n for n in before if edited[n] != before[n]}
    assert edited["of_data"] == before["of_data"]
    weights = hashes(KERNELS.replace("(1, 2)", "(1, 2, 3)"))
    assert {n for n in before if weights[n] != before[n]} == {"of_data"}
    factor = hashes(KERNELS.replace("factor = 3", "factor = 4"))
    assert factor["of_class_data"] != before["of_class_data"]
    assert hashes(KERNELS.replace("OTHER = 1", "OTHER = 2")) == before


def test_values_that_are_captured_count():
    def launcher(value: Any) -> Any:
        def run(x: Any, out: Any, *, config: Any) -> Any:
            return cp.empty(3), value

        return source_of(run)

    circle: list[Any] = [1]
    circle.append(circle)
    values = [
        *(0, 1, 1.0, True, "a", b"a", None, (1, 2), [1, 2], {1: 2}, {1, 2}, circle),
        *(np.arange(3), np.arange(3.0), np.arange(4), SimpleNamespace(a=1), SimpleNamespace(a=2)),
        *(functools.partial(max, 1), functools.partial(max, 2), math.sin, math.cos, cp.f32, cp.f64),
    ]
    found = [launcher(v) for v in values]
    assert len(set(found)) == len(values)
    assert [launcher(v) for v in values] == found


def make(weight: int) -> Any:
    @cp.cube
    def scale(x: Any, out: Any, n: cp.Comptime[int]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i] * (2 if n == 1 else weight)

    return scale


SCALE = make(2)


@cp.autotuned(space={"n": (1, 2)})
def scaled(x: Any, out: Any, *, config: Any) -> None:
    SCALE.over(out)(x, out, config["n"])


def test_a_kernel_that_was_made_again_is_measured_anew(monkeypatch: pytest.MonkeyPatch):
    """For other extents of the same process: a pick is kept for what was measured."""
    first = scaled._hash()
    monkeypatch.setitem(globals(), "SCALE", make(3))
    assert scaled._hash() != first
    monkeypatch.setitem(globals(), "SCALE", make(2))
    assert scaled._hash() == first
