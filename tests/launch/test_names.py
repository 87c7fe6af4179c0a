"""Kernels and parameters with names that mean something else to a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp

TEXT = """
import cubepy as cp

@cp.cube
def {name}(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = {value}
    if i == 0 and x[0] < 0:
        print(x[0])
"""
LOOPS = {
    "memset": "0",
    "memcpy": "x[i]",
    "memmove": "x[i]",
    "fmod": "x[i] % 3",
    "fmodf": "x[i] % 3",
    "exp": "cp.exp(x[i])",
    "printf": "x[i] + 1",
    "fflush": "x[i] + 2",
    "llvm": "x[i] + 3",
    "main": "x[i] + 4",
    "_GLOBAL_OFFSET_TABLE_": "x[i] + 5",
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LOOPS)
def test_kernels_named_like_functions_of_the_system(tmp_path: Any, name: str, dtype: Any):
    file = tmp_path / f"named_{name}.py"
    file.write_text(TEXT.format(name=name, value=LOOPS[name]))
    found: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), found)
    x = np.arange(5000, dtype=dtype) % 7
    out = np.full(5000, 9, dtype)
    found[name].over(out)(x, out)
    expected = eval(LOOPS[name], {"x": x, "i": slice(None), "cp": np})
    np.testing.assert_allclose(out, np.broadcast_to(expected, 5000), rtol=1e-6)


@dataclass(frozen=True)
class Weights:
    α: Any
    β: Any


@cp.cube
def weigh(x: Any, λ: Any, w: Any, out: Any) -> None:
    größe = cp.ABSOLUTE_POS
    if größe < out.size:
        out[größe] = x[größe] * λ + w.α - w.β


def test_names_beyond_ascii():
    x, out = np.arange(32.0), np.zeros(32)
    weigh.over(out)(x, 2.0, Weights(3.0, 1.0), out)
    np.testing.assert_array_equal(out, x * 2 + 2)
