"""Annotations that name what is defined later: as text, and as Python 3.14 postpones them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp

SOURCE = """
from dataclasses import dataclass
import cubepy as cp

@cp.cube
def scaled(x: cp.Tensor[Later], out: cp.Tensor[cp.f32], n: cp.Comptime[Count] = 2):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = added(x[i], out[i]) * n

@cp.cube
def added(a: Later, b: cp.f32):
    return a + b

@dataclass(frozen=True)
class Pair:
    first: Later
    second: "cp.f64"

@cp.cube
def of_pair(p: Pair, out: cp.Tensor[cp.f64]):
    q = Pair(p.second, p.first)
    out[0] = q.first * 2 + q.second

Later, Count = cp.f64, int

def in_function():
    T = cp.f32

    class Held:
        U = cp.f64

        @cp.cube
        def kernel(self, x: cp.Tensor[T], y: cp.Tensor[U], z: "cp.Tensor[T]", out: cp.Tensor[V]):
            out[0] = x[0] + y[0] + z[0]

    V = cp.f64
    return Held().kernel
"""
POSTPONED = "from __future__ import annotations\n"


@pytest.fixture(params=[POSTPONED, ""])
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The module, with annotations as text and without."""
    if not request.param and sys.version_info < (3, 14):
        pytest.skip("Python evaluates annotations at once")
    path = tmp_path / "postponed_module.py"
    path.write_text(request.param + SOURCE)
    spec = importlib.util.spec_from_file_location("postponed_module", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["postponed_module"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["postponed_module"]


def test_names_of_the_module(module: Any):
    x, out = np.full(5, 1.5), np.ones(5, np.float32)
    module.scaled.over(out)(x, out)
    assert (out == 5).all()
    with pytest.raises(cp.LaunchError, match=r"f32, expected f64"):
        module.scaled.over(out)(out, out)
    assert "n" in module.scaled.parameters


def test_fields_of_dataclasses(module: Any):
    out = np.zeros(1)
    module.of_pair[1, 1](module.Pair(1.25, 3), out)
    assert out[0] == 7.25


def test_names_of_scopes(module: Any):
    kernel, out = module.in_function(), np.zeros(1)
    single, double = np.ones(1, np.float32), np.full(1, 2.0)
    if not hasattr(module, "annotations"):  # text keeps no names of classes and functions
        kernel[1, 1](single, double, single, out)
        assert out[0] == 4
        for k, wrong in enumerate((double, single, double)):
            given = [single, double, single]
            given[k] = wrong
            with pytest.raises(cp.LaunchError, match="expected"):
                kernel[1, 1](*given, out)
