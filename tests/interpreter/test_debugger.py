"""`pdb` in the user's kernel: its file, lines, names and positions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.base import to_kernel
from cubepy.frontend.signature import Signature, TensorArg
from cubepy.ir import ops
from cubepy.ir.types import f32
from cubepy.options import Options
from cubepy.targets import INTERPRETER, parse_target

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import numpy as np
import cubepy as cp


@cp.cube
def half(v):
    w = v * 0.5
    return w


@cp.cube
def scale(x, out, factor: cp.Comptime[int] = 3):
    i = cp.ABSOLUTE_POS
    tile = cp.shared(4, cp.f32)
    tile[cp.UNIT_POS] = x[i]
    cp.sync_cube()
    total = 0.0
    for k in range(factor):
        total += half(tile[cp.UNIT_POS]) * k
    if i == 5:
        {stop}
    out[i] = total


x = np.arange(8, dtype=np.float32)
out = np.zeros_like(x)
scale.configure(device="interpreter")[2, 4](x, out)
print("result", out)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "user kernel.py"
    path.write_text(SCRIPT.format(stop="breakpoint()"))
    return path


def session(path: Path, commands: list[str], *arguments: str) -> str:
    """What a session with these commands prints."""
    command = [sys.executable, *arguments, str(path)]
    given = "\n".join([*commands, ""])
    done = subprocess.run(
        command, cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout


def line_of(text: str) -> int:
    return next(k for k, line in enumerate(SCRIPT.splitlines(), 1) if text in line)


def test_breakpoint_stops_in_the_users_line(script: Path) -> None:
    commands = ["p total", "p UNIT_POS, CUBE_POS", "p x", "p tile[1]", "p factor, k", "n", "c"]
    text = session(script, commands)
    stop = line_of("{stop}")
    assert f"> {script}({stop})scale()\n-> breakpoint()\n(Pdb) 7.5\n(Pdb) (1, 1)\n" in text
    assert "x: f32[8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]" in text
    assert "(Pdb) 5.0\n(Pdb) (3, 2)\n" in text
    assert f"> {script}({stop + 1})scale()\n-> out[i] = total\n" in text
    assert "result [ 0.   1.5  3.   4.5  6.   7.5  9.  10.5]" in text


def test_breakpoints_of_pdb_stop_in_helpers(script: Path) -> None:
    inside, call = line_of("return w"), line_of("total += half")
    store = line_of("out[i] = total")
    commands = [
        *(f"b {inside}", "c", "p v, w, UNIT_POS", "u", "p k, total", "n", "cl 1"),
        *(f"b {script}:{store}, UNIT_POS == 2", "c", "p i", "q"),
    ]
    text = session(script, commands, "-m", "pdb")
    assert f"> {script}({inside})half()\n-> return w\n(Pdb) (0.0, 0.0, 0)\n" in text
    assert f"> {script}({call})scale()\n" in text and "(Pdb) (0, 0.0)\n" in text
    assert f"> {script}({call - 1})scale()\n-> for k in range(factor):\n" in text
    assert f"> {script}({store})scale()\n-> out[i] = total\n(Pdb) 2\n" in text


def test_next_steps_over_barriers_and_helpers(script: Path) -> None:
    tile = line_of("tile[cp.UNIT_POS] = x[i]")
    text = session(script, [f"b {tile}", "c", "cl 1", *["n"] * 5, "q"], "-m", "pdb")
    shown = [line for line in text.splitlines() if line.startswith((f"> {script}", "(Pdb) >"))]
    lines = [int(line.rsplit("(", 1)[0].rsplit("(", 1)[1].split(")")[0]) for line in shown[1:]]
    assert lines == list(range(tile, tile + 5)) + [tile + 3]


def test_post_mortem_stops_where_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text(SCRIPT.format(stop="out[i + 8] = total"))
    text = session(path, ["c", "p i, UNIT_POS, CUBE_POS", "p total", "q"], "-m", "pdb")
    assert f"> {path}({line_of('{stop}')})scale()\n-> out[i + 8] = total\n" in text
    assert "(Pdb) (5, 1, 1)\n(Pdb) 7.5\n" in text


@cp.cube
def with_breakpoint(x):
    breakpoint()  # noqa: T100
    x[cp.ABSOLUTE_POS] = 1.0


def test_other_devices_ignore_breakpoints() -> None:
    x = np.zeros(4, np.float32)
    with_breakpoint[1, 4](x)
    assert x.all()


def rows(target: str) -> set[str]:
    signature = Signature((("x", TensorArg(f32, 1, axis=0, is_linear=True)),), (4, 1, 1), 1, True)
    function = with_breakpoint.function
    kernel, _ = to_kernel(function, signature, parse_target(target), Options())
    return {op.row.name for op in kernel.body.walk()}


def test_only_the_interpreter_keeps_names() -> None:
    reporting = {ops.NAME.name, ops.BREAKPOINT.name}
    assert reporting <= rows("interpreter") and not reporting & rows("cpu:x86-64-v3")


@cp.cube
def many_names(x, out, flag: cp.Comptime[bool] = True):
    _3 = x[0]
    UNIT_POS = 5.0
    pair = (x[1], 2)
    abs = x[2]
    row = x[1:3]
    out[0] = -_3 + UNIT_POS + pair[0] + abs + row[1]
    breakpoint()  # noqa: T100


def test_names_of_the_user_meet_none_of_ours(monkeypatch) -> None:
    """Also shown: tuples, views, comptime values."""
    seen = {}
    monkeypatch.setattr("sys.breakpointhook", lambda: seen.update(sys._getframe(1).f_locals))
    x, out = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
    many_names.configure(device="interpreter")[1, 1](x, out)
    assert out[0] == 0 + 5 + 1 + 2 + 2
    assert (seen["_3_"], seen["UNIT_POS_"], seen["UNIT_POS"], seen["abs"]) == (0, 5.0, 0, 2.0)
    assert seen["pair"] == (1.0, 2) and seen["flag"] is True
    assert seen["row"].tolist() == [1.0, 2.0] and seen["row"][1] == 2.0
    assert repr(seen["out"]) == "out: f32[1] = [10.0]"
    with pytest.raises(IndexError, match="outside 0 to 1"):
        seen["row"][2]


@cp.cube
def nested(x, out):
    def inner(v):
        if v > 2:
            return v * 2
        return v + 1

    out[cp.UNIT_POS] = inner(x[cp.UNIT_POS]) + (lambda a: a * 10)(x[cp.UNIT_POS])


def test_nested_functions_and_lambdas() -> None:
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    nested.configure(device="interpreter")[1, 4](x, out)
    assert list(out) == [1, 12, 23, 36]


def test_target_is_data() -> None:
    assert parse_target("interpreter") is INTERPRETER
