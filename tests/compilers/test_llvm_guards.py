"""Loops over units that are cut at the limits of guards: random conditions, as Python has them.

`CUBEPY_SOAK=2000 pytest tests/compilers/test_llvm_guards.py` tries more.
"""

from __future__ import annotations

import linecache
import os
import random
from typing import Any

import numpy as np
import pytest

import cubepy as cp

PROGRAMS = int(os.environ.get("CUBEPY_SOAK", "15"))
HEIGHT, WIDTH = 9, 23
FORMS = {
    "line": ("i = cp.ABSOLUTE_POS", "i < o.size", "o.flat[i]", "x.flat[i]", ("i",)),
    "rows": (
        "r, c = divmod(cp.ABSOLUTE_POS, o.shape[1])",
        "r < o.shape[0]",
        "o[r, c]",
        "x[r, c]",
        ("r", "c", "c", "r", "cp.ABSOLUTE_POS"),
    ),
    "axes": (
        "r, c = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X",
        "r < o.shape[0] and c < o.shape[1]",
        "o[r, c]",
        "x[r, c]",
        ("r", "c"),
    ),
}


class _Program:
    """A kernel whose units read and write under conditions on their positions."""

    def __init__(self, form: str, seed: int) -> None:
        self._random = random.Random(f"{form} {seed}")
        self._start, self._guard, self._out, self._in, self._names = FORMS[form]

    def _condition(self, depth: int) -> str:
        r = self._random
        if depth and r.random() < 0.4:
            joint = r.choice((" and ", " or ", " and "))
            found = joint.join(self._condition(depth - 1) for _ in range(2))
            return f"not ({found})" if r.random() < 0.2 else f"({found})"
        name = r.choice(self._names) + r.choice(("", "", " + 1", " - 3"))
        limit = r.choice(("0", "1", "7", "20", "a", "b", "x.shape[0]", "x.shape[1]", "x.size - 2"))
        order = r.choice(("<", "<", ">=", ">", "<=", "==", "!="))
        pair = (name, limit) if r.random() < 0.8 else (limit, name)
        return f" {order} ".join(pair)

    def text(self) -> str:
        """The kernel."""
        lines = ["def kernel(x, a: cp.i64, b: cp.i64, o):", f"    {self._start}"]
        lines += [f"    if {self._guard}:", "        v = 1.0"]
        for k in range(self._random.randint(1, 3)):
            lines.append(f"        if {self._condition(1)}:")
            action = self._random.choice((f"v += {self._in} * {k + 2}", f"{self._out} = v + {k}"))
            lines.append(f"            {action}")
            if self._random.random() < 0.4:
                lines += ["        else:", f"            v = v * 3 - {self._in}"]
        return "\n".join([*lines, f"        {self._out} += v", ""])


def _made(text: str, **names: Any) -> Any:
    file = f"<guards {abs(hash(text))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"cp": cp, **names}
    exec(compile(text, file, "exec"), namespace)
    return namespace["kernel"]


def _expected(text: str, form: str, x: Any, a: int, b: int) -> Any:
    """What Python computes, unit by unit."""
    o = np.full_like(x, 5)
    for place in range(x.size):
        y, c = divmod(place, x.shape[1])
        ours = text.replace("ABSOLUTE_POS_Y", str(y)).replace("ABSOLUTE_POS_X", str(c))
        ours = ours.replace("ABSOLUTE_POS", str(place)).replace("cp.i64", "int")
        _made(ours.replace("cp.", ""))(x, a, b, o)
    return o


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_guards(form: str, seed: int):
    text = _Program(form, seed).text()
    x = np.random.default_rng(seed).integers(-9, 9, (HEIGHT, WIDTH)).astype(np.float64)
    kernel = cp.cube(_made(text))
    choice = random.Random(seed)
    limits = [choice.choice((-5, 0, 3, 8, 15, 22, 23, 100, 206, 207, 500)) for _ in range(4)]
    for a, b in (limits[:2], limits[2:]):
        o = np.full_like(x, 5)
        kernel.over(o if form == "axes" else o.size + choice.randint(0, 30))(x, a, b, o)
        assert (o == _expected(text, form, x, a, b)).all(), f"{a} {b}\n{text}"


@cp.cube
def pad(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        o[i] = x[i] if i < x.size else 0


def test_no_masks_where_a_guard_is_decided():
    x, o = np.ones(100, np.float32), np.ones(4096, np.float32)
    text = pad.over(o).inspect(x, o, target="cpu:x86-64-v4", stage="llvm")
    assert "masked.load" not in text and "masked.gather" not in text
    pad.over(o)(x, o)
    assert (o[:100] == 1).all() and (o[100:] == 0).all()
