"""Names that a loop alone binds, and that operands which may not run assign behind it."""

from __future__ import annotations

import itertools
import linecache
from typing import Any

import numpy as np
import pytest

import cubepy as cp

UNITS = 6
LOOPS = {
    "endless": """\
    n = 0
    while True:
        n += 1
        {first}
        if n > 2:
            break
""",
    "counted": """\
    for n in range(3):
        {first}
        if x[i] == n:
            break
""",
    "two exits": """\
    n = 0
    while True:
        n += 1
        if x[i] == 2:
            {first}
            break
        if n > 1:
            {second}
            break
""",
}
LOOPS["else"] = """\
    for n in range(2):
        {first}
    else:
        {second}
"""
USES = {
    "and": """\
    if x[i] == 3 and (v := x[i] * 7) < 30:
        out[i] = v
    elif v <= 2:
        out[i] = v + 1
    else:
        out[i] = v + 2
""",
    "chain": """\
    out[i] = 7 if x[i] == 3 >= (v := x[i] * 2) else 8
    out[i] += v
""",
    "choice": """\
    w = v if x[i] > 1 else (v := 3.0)
    out[i] = v + w
""",
    "or in a loop": """\
    for m in range(2):
        if x[i] < 2 or (v := v * 3) > 10:
            v -= 1
    out[i] = v
""",
    "branch": """\
    if x[i] == 3:
        v = x[i] * 9
    out[i] = v
""",
}
FIRST, SECOND = ("v = x[i] * n", "v = 2.0", "v = x[i]"), ("v = 4.0", "v = x[i] - 1")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("loop", LOOPS)
def test_operands_assign_what_a_loop_left(loop: str, use: str):
    x = np.arange(UNITS, dtype=np.float32)
    for first, second in itertools.product(FIRST, SECOND):
        body = LOOPS[loop].format(first=first, second=second) + USES[use]
        found, expected = np.zeros((2, UNITS), np.float32)
        scope: dict[str, Any] = {"cp": cp}
        text, name = f"def kernel(x, out):\n    i = cp.UNIT_POS\n{body}", f"<left {hash(body)}>"
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        exec(compile(text, name, "exec"), scope)
        cp.cube(scope["kernel"])[1, UNITS](x, found)
        python = f"def run(i, x, out):\n{body}"
        exec(python, scope)
        for i in range(UNITS):
            scope["run"](i, x, expected)
        np.testing.assert_array_equal(found, expected, err_msg=body)


def bound_in_else(x: Any, out: Any):
    i = cp.UNIT_POS
    for n in range(2):
        w = 1.0
    else:
        w = x[i]
    w = n + 1
    for n in range(2):
        w = 0.5 if x[i] > 2 else w
    out[i] = w


def read_in_chains(x: Any, out: Any):
    i = cp.UNIT_POS
    for n in range(2):
        v = x[i]
    for n in range(3):
        w = v + (v := 2.0)
    for n in range(2):
        u = 1.0 if 2.0 < (v := 2.0) < v else 3.0
        for m in range(2):
            if (w < x[i] or v < x[i]) or (v := m) > m + 1:
                continue
            out[i] += v * u


@pytest.mark.parametrize("function", [bound_in_else, read_in_chains])
def test_what_stands_behind_keeps_its_type(function: Any):
    x = np.arange(UNITS, dtype=np.float32)
    found, expected = np.zeros((2, UNITS), np.float32)
    cp.cube(function)[1, UNITS](x, found)
    cp.cube(function).configure(device="interpreter")[1, UNITS](x, expected)
    wanted = [2, 2, 2, 0.5, 0.5, 0.5] if function is bound_in_else else [6, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(expected, wanted)


@cp.cube
def widened(x, out):
    i = cp.UNIT_POS
    v = cp.i32(70000)
    if i > 1 and (v := x[i]) > 2:
        out[i] = v * 30000
    else:
        out[i] = -v


@cp.cube
def walked(x, out):
    i = cp.UNIT_POS
    node, steps = cp.i32(i), cp.i32(0)
    while steps < 9 and (node := x[node]) >= 0:
        steps += 1
    out[i] = steps * 100 + node


@cp.cube
def chained(x, out):
    i = cp.UNIT_POS
    v, w = cp.i64(1 << 40), (cp.i32(1), cp.i32(2))
    for k in range(3):
        y = x[i] if 0 < x[i] < (v := x[k]) else cp.i16(k)
        if y > 1 and (w := (x[k], y))[0] > 1:
            out[i] += w[1]
    out[i] += v % 1000 + w[0] * 10000


def _widened(x: list[int], i: int) -> int:
    return x[i] * 30000 if i > 1 and x[i] > 2 else -(x[i] if i > 1 else 70000)


def _walked(x: list[int], i: int) -> int:
    node, steps = i, 0
    while steps < 9 and (node := x[node]) >= 0:
        steps += 1
    return steps * 100 + node


def _chained(x: list[int], i: int) -> int:
    v, w, out = 1 << 40, (1, 2), 0
    for k in range(3):
        y = x[i] if 0 < x[i] < (v := x[k] if x[i] > 0 else v) else k
        if y > 1:
            w = (x[k], y)
            out += y if x[k] > 1 else 0
    return out + v % 1000 + w[0] * 10000


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    ("kernel", "expected"), [(widened, _widened), (walked, _walked), (chained, _chained)]
)
def test_a_narrower_value_becomes_what_the_name_had(kernel: Any, expected: Any, device: str):
    for x in ([3, 4, 5, -1, 1, 2], [1, 2, 3, 4, 5, -7], [2, 0, 1, 3, -3, 5]):
        out = np.zeros(UNITS, np.int64)
        kernel.configure(device=device)[1, UNITS](np.array(x, np.int16), out)
        assert out.tolist() == [expected(x, i) for i in range(UNITS)]


def test_a_wider_value_is_another_one():
    @cp.cube
    def kernel(x, out):
        v = cp.i16(7)
        if x[0] > 1 and (v := cp.i32(x[1]) * 3) > 2:
            out[1] = v
        out[0] = v

    with pytest.raises(cp.CompileError, match=r"E210: `v` is i16 .* and i32 .* on another"):
        kernel[1, 1](np.zeros(2, np.int16), np.zeros(2, np.int32))
