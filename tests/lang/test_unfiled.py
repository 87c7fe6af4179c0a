"""Kernels where no file holds their text: `python -c`, and prompts (each a real process)."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cubepy.lang.unfiled import command_text

ROOT = Path(__file__).parents[2]


def first_screen() -> str:
    """The first Python of the README, on fewer elements."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1].replace("1 << 20", "1 << 10")


CHECK = 'print("largest", "error", float(abs(out - gelu_of(a * b + c) * a).max()) < 1e-5)\n'
REFERENCE = (
    "import math\n"
    "gelu_of = np.vectorize(lambda v: v * 0.5 * (1 + math.erf(v * 0.7071067811865476)))\n"
)


@pytest.mark.parametrize(
    "flags", [["-c"], ["-Wignore", "-X", "utf8", "-c"], ["-W", "ignore", "-Ec"]]
)
def test_the_command_line(flags: list[str]):
    text = first_screen() + REFERENCE + CHECK
    done = subprocess.run([sys.executable, *flags, text], cwd=ROOT, capture_output=True, text=True)
    assert "largest error True" in done.stdout, done.stderr


def test_code_that_the_command_line_only_looks_like():
    text = (
        "import cubepy as cp\n"
        "def k(x): x[0] = 1\n"
        "names = {}\n"
        'exec("def k(x): x[0] = 2", names)\n'
        "try: cp.cube(names['k']).inspect('f32[4]')\n"
        "except cp.CompileError as e: print(e.code)\n"
        "print('ir' if 'store' in cp.cube(k).inspect('f32[4]', stage='ir') else 'no')\n"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["E105", "ir"], done.stderr


CAPTURED = """
from dataclasses import dataclass
import cubepy as cp
import numpy as np
SCALE = 2.0
def scaled(n): return SCALE * n
@dataclass(frozen=True)
class Pair:
    a: int
    def __init__(self, a): object.__setattr__(self, "a", 2 * a)
    def __eq__(self, other): return True
    def __hash__(self): return 1
@cp.cube
def k(out, pair: cp.Comptime): out[0] = scaled(3) + pair.a
@cp.cube
def make(out, n: int): out[0] = Pair(n).a
out = np.zeros(1)
for SCALE, a in ((2.0, 1), (5.0, 1), (5.0, 4)):
    k[1, 1](out, Pair(a))
    print(out[0])
try: make[1, 1](out, 3)
except cp.CompileError as error: print(error.code)
"""


def test_functions_of_the_command_line_are_the_users_own():
    """They have the file of what `dataclass` writes, but are read at each launch."""
    done = subprocess.run(
        [sys.executable, "-c", CAPTURED], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == ["8.0", "17.0", "23.0", "E108"], done.stderr


def test_errors_show_the_line():
    text = "import cubepy as cp\n@cp.cube\ndef k(x):\n    x[0] = x.foo\nk.inspect('f32[4]')\n"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)
    assert "<-c>:4:12 in k" in done.stderr
    assert "4 | x[0] = x.foo" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-c", "a"], "a"),
        (["-ca"], "a"),
        (["-IBc", "a", "b"], "a"),
        (["-Xc", "-W", "c", "-c", "a"], "a"),
        (["-X", "c", "-m", "c"], None),
        (["--check-hash-based-pycs", "always", "-c", "a"], "a"),
        (["script.py", "-c", "a"], None),
        (["-"], None),
        ([], None),
    ],
)
def test_the_text_of_command_lines(arguments: list[str], text: str | None):
    assert command_text(["python", *arguments]) == text


def at_a_prompt(text: str, home: Path, wanted: str, timeout: float = 120) -> str:
    """What Python prints when `text` is pasted into its REPL on a terminal, up to `wanted`."""
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "HOME": str(home), "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-q"], environment)
    shown = ""
    try:
        pending, end = text.encode(), time.monotonic() + timeout
        while time.monotonic() < end and wanted not in shown:
            ready = select.select([terminal], [terminal] if pending else [], [], 1)
            if terminal in ready[0]:
                shown += os.read(terminal, 65536).decode(errors="replace").replace("\r", "")
            if terminal in ready[1]:
                pending = pending[os.write(terminal, pending[:256]) :]
        return shown
    except OSError:  # it has ended
        return shown
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_the_first_screen_at_a_prompt(tmp_path: Path):
    shown = at_a_prompt(first_screen() + REFERENCE + CHECK, tmp_path, "largest error True")
    assert "largest error True" in shown, shown[-3000:]


def test_lines_that_repeat_and_functions_that_change_at_a_prompt(tmp_path: Path):
    text = (
        "import cubepy as cp, numpy as np\n"
        "@cp.cube\ndef k(x):\n    x[0] += 1\n    x[0] += 1\n\n"
        "x = np.zeros(2)\nk[1, 1](x)\n"
        "@cp.cube\ndef k(x):\n    x[1] += 5\n\n"
        "k[1, 1](x)\n"
        "twice = cp.cube(lambda x, f=lambda v: v * 2: x.flat.__class__)\n"
        "if True:\n    @cp.cube\n    def inner(x):\n        x[1] = x[0] * 7\n\n"
        "inner[1, 1](x)\n"
        'print("found", x.tolist())\n'
    )
    shown = at_a_prompt(text, tmp_path, "found [2.0, 14.0]")
    assert "found [2.0, 14.0]" in shown, shown[-3000:]
