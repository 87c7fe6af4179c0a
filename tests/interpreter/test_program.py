"""What the interpreter compiles: the roundings of other devices, names that print and parse."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.base import to_kernel
from cubepy.compilers.python.compiler import PythonCompiler
from cubepy.errors import UnsupportedError
from cubepy.frontend.signature import Signature, TensorArg
from cubepy.ir import ops
from cubepy.ir.core import Kernel
from cubepy.ir.parser import parse_kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.types import f32
from cubepy.options import Options
from cubepy.targets import INTERPRETER, parse_target


def traced(function: Any, target: str, contract: bool = True) -> Kernel:
    tensor = TensorArg(f32, 1, axis=0, is_linear=True)
    signature = Signature((("x", tensor), ("out", tensor)), (4, 1, 1), 1, True)
    return to_kernel(function, signature, parse_target(target), Options(contract=contract))[0]


def count(kernel: Kernel, row: ops.OpDef) -> int:
    return sum(op.row is row for op in kernel.body.walk())


def named_product(x, out):
    i = cp.ABSOLUTE_POS
    p = x[i] * x[i + 1]
    q = x[i] * 3
    out[i] = p + q + x[i + 2]


def product_used_twice(x, out):
    i = cp.ABSOLUTE_POS
    p = x[i] * x[i + 1]
    assert p > 0
    out[i] = p + x[i + 2]


@pytest.mark.parametrize("function", [named_product, product_used_twice])
@pytest.mark.parametrize("contract", [True, False])
def test_names_do_not_change_contraction(function, contract):
    ours = traced(function, "interpreter", contract=contract)
    other = traced(function, "cpu:x86-64-v3", contract=contract)
    assert count(ours, ops.FMA) == count(other, ops.FMA)


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


class Two(NamedTuple):
    a: Any
    b: Any


def all_kinds(x, out):
    s = cp.shared((2, 2), cp.f32)
    row = s[0]
    record = Pair(x[0], 2.0)
    both = Two(x[1], x[2])
    _text, number, _truth = "it's {x}", -2.5, True
    _n = 10**20
    row[0] = record.first
    out[0] = row[0] + both.a + number
    for k in range(3):
        acc = x[k]
        out[k] = acc


def test_kernels_with_names_print_and_parse():
    text = print_kernel(traced(all_kinds, "interpreter"))
    assert print_kernel(parse_kernel(text)) == text
    assert "kind = 'record'" in text and "kind = 'tuple'" in text


def test_artifacts_are_plain_json():
    artifact = PythonCompiler().build(traced(all_kinds, "interpreter"), INTERPRETER, Options())
    data = json.loads(artifact.code)
    assert len(data["lines"]) == len(data["source"].splitlines())
    assert data["functions"][-1][:3] == ["all_kinds", __file__, "all_kinds"]
    assert {"source", "lines", "spans", "sites", "meanings"} <= set(data)


def chain(depth: int) -> Any:
    """A kernel of `depth` nested branches."""
    lines = ["def chain(x, out):", " v = x[0]"]
    for k in range(depth):
        lines.append(f"{' ' * (k + 1)}if v > {k}:")
    lines.append(f"{' ' * (depth + 1)}out[0] = v")
    return "\n".join(lines)


def compiled(depth: int, tmp_path: Any) -> Any:
    path = tmp_path / f"chain{depth}.py"
    path.write_text(f"import cubepy as cp\n@cp.cube\n{chain(depth)}\n")
    namespace: dict[str, Any] = {"__name__": "chain"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["chain"].configure(device="interpreter")[1, 1]


def test_deep_branches(tmp_path):
    x, out = np.full(1, 1000, np.float32), np.zeros(1, np.float32)
    compiled(80, tmp_path)(x, out)
    assert out[0] == 1000
    with pytest.raises(UnsupportedError, match="Python cannot nest so many"):
        compiled(95, tmp_path)(x, out)
