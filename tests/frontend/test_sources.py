"""Where kernels come from: files of every shape, cells, the REPL, decorators, methods, lambdas."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib.util
import inspect
import linecache
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.lang import edited
from cubepy.lang.function import _own_lines

X = np.arange(4, dtype=np.float32)
BODY = "    i = cp.ABSOLUTE_POS\n    if i < out.size:\n        out[i] = x[i] * 2\n"


def doubles(kernel: Any) -> None:
    out = np.full_like(X, np.nan)
    kernel[X.size, 1](X, out)
    np.testing.assert_array_equal(out, 2 * X)


def run_cell(text: str, name: str, scope: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run text as IPython runs a cell: compiled under a name that only `linecache` knows."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"__name__": "__main__", "cp": cp} if scope is None else scope
    exec(compile(text, name, "exec"), scope)
    return scope


CELLS = [
    "<ipython-input-3-0a1b2c3d4e5f>",
    "/tmp/ipykernel_4242/1234567.py",
    "<stdin>",
    "<python-input-7>",
]


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str):
    scope = run_cell(f"@cp.cube\ndef k(x, out):\n{BODY}", name)
    doubles(scope["k"])
    run_cell(
        f"factor = 3\n\n@cp.cube\ndef k(x, out):\n{BODY.replace('2', '(factor - 1)')}", name, scope
    )
    doubles(scope["k"])
    run_cell("factor = 5\n", name + "x", scope)
    out = np.zeros_like(X)
    scope["k"][X.size, 1](X, out)
    np.testing.assert_array_equal(out, 4 * X)


def test_cells_that_use_each_other():
    scope = run_cell("def twice(v):\n    return v + v\n", "<cell a>")
    run_cell(
        f"@cp.cube\ndef k(x, out):\n{BODY.replace('x[i] * 2', 'twice(x[i])')}", "<cell b>", scope
    )
    doubles(scope["k"])
    run_cell("def twice(v):\n    return v * 5\n", "<cell c>", scope)
    out = np.zeros_like(X)
    scope["k"][X.size, 1](X, out)
    np.testing.assert_array_equal(out, 5 * X)


def test_no_source():
    scope: dict[str, Any] = {"cp": cp}
    exec(f"@cp.cube\ndef lost(x, out):\n{BODY}", scope)
    with pytest.raises(cp.CompileError, match="E105.*`lost`(.|\n)*file"):
        doubles(scope["lost"])


FILES = {
    "crlf": f"import cubepy as cp\n@cp.cube\ndef k(x, out):\n{BODY}".replace("\n", "\r\n"),
    "tabs": "import cubepy as cp\nif True:\n\t@cp.cube\n\tdef k(x, out):\n\t\ti = cp.ABSOLUTE_POS\n"
    "\t\tif i < out.size:\n\t\t\tout[i] = x[i] * 2\n",
    "no newline at the end": f"import cubepy as cp\n@cp.cube\ndef k(x, out):\n{BODY}".rstrip(),
    "one line": "import cubepy as cp\n@cp.cube\ndef k(x, out): out[cp.ABSOLUTE_POS] = x[cp.ABSOLUTE_POS] * 2",
    "semicolons": "import cubepy as cp\n@cp.cube\ndef k(x, out): i = cp.ABSOLUTE_POS; out[i] = x[i]; out[i] *= 2\n",
    "future": f"from __future__ import annotations\nimport cubepy as cp\n@cp.cube\ndef k(x: cp.Tensor[cp.f32], out):\n{BODY}",
    "unicode": f"import cubepy as cp\n# größer – ±∞\n@cp.cube\ndef k(x, out):\n    'Größe ×2'\n    ñ, 变量 = 2, 1\n{BODY.replace('2', '(ñ * 变量)')}",
    "another alias": f"import cubepy as cb\n@cb.cube\ndef k(x, out):\n{BODY.replace('cp.', 'cb.')}",
    "names imported": f"from cubepy import cube, ABSOLUTE_POS\n@cube\ndef k(x, out):\n{BODY.replace('cp.', '')}",
    "called decorator": f"import cubepy as cp\n@cp.cube()\ndef k(x, out):\n{BODY}",
    "assigned": f"import cubepy as cp\ndef f(x, out):\n{BODY}k = cp.cube(f)\n",
    "in a function": f"import cubepy as cp\ndef make():\n  @cp.cube\n  def k(x, out):\n{BODY}  return k\nk = make()\n",
    "in a class": f"import cubepy as cp\nclass C:\n  @staticmethod\n  @cp.cube\n  def k(x, out):\n{BODY}k = C.k\n",
    "comments at column 0": "import cubepy as cp\ndef make():\n    @cp.cube\n    def k(x, out):\n        i = cp.ABSOLUTE_POS\n# a comment\n        out[i] = x[i] * 2\n    return k\nk = make()\n",
    "text at column 0": "import cubepy as cp\ndef make():\n    @cp.cube\n    def k(x, out):\n        '''Text\nat column 0\n        '''\n        i = cp.ABSOLUTE_POS\n        out[i] = x[i] * 2\n    return k\nk = make()\n",
    "decorator of many lines": f"import cubepy as cp\nimport functools\nchoose = lambda *a: lambda f: f\n@choose(\n    1,\n    2,\n)\n@cp.cube\n@choose(3)\ndef k(x, out):\n{BODY}",
    "form feed": f"import cubepy as cp\n\f\n@cp.cube\ndef k(x, out):\n{BODY}",
    "same name twice": f"import cubepy as cp\ndef k(x, out):\n    out[0] = 99\n@cp.cube\ndef k(x, out):\n{BODY}",
    "helper below": "import cubepy as cp\n@cp.cube\ndef k(x, out):\n    i = cp.ABSOLUTE_POS\n    out[i] = later(x[i])\ndef later(v):\n    return v * 2\n",
    "encoding": f"# -*- coding: latin-1 -*-\nimport cubepy as cp\n# \xe4\xf6\n@cp.cube\ndef k(x, out):\n{BODY}",
}


def load(path: Any, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Any):
    path = tmp_path / "größe 1.py"
    path.write_bytes(FILES[name].encode("latin-1" if name == "encoding" else "utf-8"))
    doubles(load(path, "kernels_" + name.replace(" ", "_")).k)


def test_a_file_that_changed_on_disk(tmp_path: Any):
    """A module that is loaded again is read again, also where only annotations changed."""
    path = tmp_path / "changing.py"
    out = np.zeros(1)
    for kind, expected in (("f16", 2048.0), ("f32", 2049.0)):
        path.write_text(
            f"import cubepy as cp\n@cp.cube\ndef k(out):\n    v: cp.{kind} = 2049\n    out[0] = v\n"
        )
        linecache.checkcache(str(path))
        load(path, "changing").k[1, 1](out)
        assert out[0] == expected


def test_stacked_decorators_keep_the_kernel():
    def traced(f):
        @functools.wraps(f)
        def wrapper(v):
            return f(v) + 1

        return wrapper

    @traced
    def inner(v):
        return v * 2

    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        out[i] = inner(x[i]) - 1

    doubles(kernel)


class Scaler:
    """Methods as helpers: the instance is comptime, or a frozen structure."""

    factor = 2

    def apply(self, v):
        return v * self.factor

    @classmethod
    def of_class(cls, v):
        return v * cls.factor

    @staticmethod
    def plain(v):
        return v + v


SCALER = Scaler()


def test_methods():
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        out[i] = SCALER.apply(x[i]) + Scaler.of_class(x[i]) - Scaler.plain(x[i])

    doubles(kernel)


def test_partials_and_callables():
    multiply = functools.partial(lambda a, b: a * b, 2)

    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        out[i] = multiply(x[i])

    doubles(kernel)


def test_lambdas_as_cube_functions():
    double = cp.cube(lambda v: v * 2)
    triple, other = cp.cube(lambda v: v * 3), cp.cube(lambda v: v * 2)

    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        out[i] = double(x[i]) + triple(x[i]) - other(x[i]) - x[i]

    doubles(kernel)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="older REPLs keep no source")
def test_the_repl():
    text = f"import numpy as np, cubepy as cp\n@cp.cube\ndef k(x, out):\n{BODY}\n"
    text += "o = np.zeros(2)\nk[2, 1](np.ones(2), o)\nprint(o)\n"
    done = subprocess.run([sys.executable, "-i"], input=text, capture_output=True, text=True)
    assert "[2. 2.]" in done.stdout
    text = text.replace("x[i] * 2", "x[i] * y")
    done = subprocess.run([sys.executable, "-i"], input=text, capture_output=True, text=True)
    assert "x[i] * y" in done.stderr, "an error shows the line"


def test_python_without_positions(tmp_path: Any):
    """`-X no_debug_ranges`: lambdas of one line cannot be distinguished, which is reported."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, cubepy as cp\n"
        "fs = [lambda v: v * 2, lambda v: v * 3]\n"
        "one = [lambda v: v * 2]\n"
        f"@cp.cube\ndef k(x, out, f: cp.Comptime):\n{BODY.replace('x[i] * 2', 'f(x[i])')}"
        "o = np.zeros(2)\nk[2, 1](np.ones(2), o, one[0])\nassert (o == 2).all()\n"
        "try:\n    k[2, 1](np.ones(2), o, fs[1])\n"
        "except cp.CompileError as e:\n    assert e.code == 'E105', e\nelse:\n    assert (o == 3).all()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def _functions(code: CodeType) -> Iterator[CodeType]:
    """All `def`s in a module's code."""
    if not code.co_name.startswith("<") and code.co_flags & inspect.CO_OPTIMIZED:
        yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _functions(inner)


@pytest.mark.parametrize("module", [ast, argparse, inspect, textwrap])
@pytest.mark.parametrize("optimise", [0, 2])
def test_lines_are_those_that_inspect_finds(module: ModuleType, optimise: int):
    """Also where the last statements leave no code, such as an `assert` under -O."""
    file = inspect.getsourcefile(module)
    assert file is not None
    text = Path(file).read_text(encoding="utf-8")
    codes = list(_functions(compile(text, file, "exec", optimize=optimise)))
    assert len(codes) > 10
    for code in codes:
        quick = "".join(_own_lines(linecache.getlines(file), code))
        slow = "".join(inspect.getsourcelines(code)[0])
        trees = [ast.dump(ast.parse(textwrap.dedent(block))) for block in (quick, slow)]
        assert trees[0] == trees[1], code


class Filter:
    """Kernels as methods of an object that is comptime."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    @cp.cube
    def scaled(self, v):
        return v * self.factor

    @cp.cube
    def apply(self, x, out, shift: int = 0):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = self.scaled(x[i]) + shift

    @staticmethod
    @cp.cube
    def fill(out, value: float):
        out[cp.ABSOLUTE_POS] = value


@dataclasses.dataclass(frozen=True)
class Line:
    """Kernels as methods of a record, whose fields are arguments."""

    slope: Any
    offset: Any

    @cp.cube
    def at(self, v):
        return self.slope * v + self.offset

    @cp.cube
    def draw(self, x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = self.at(x[i])


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_kernels_as_methods(device: str):
    x, out = np.arange(4.0), np.zeros(4)
    double = Filter(2)
    double.apply.configure(device=device).over(out)(x, out, shift=1)
    assert out.tolist() == [1, 3, 5, 7]
    Filter(5).apply.configure(device=device)[4, 1](x, out)
    assert out.tolist() == [0, 5, 10, 15]
    double.factor = 3
    double.apply.configure(device=device)[4, 1](x, out)
    assert out.tolist() == [0, 3, 6, 9]
    bound = double.apply.configure(device=device)[4, 1].bind(x, out, 1)
    bound()
    assert out.tolist() == [1, 4, 7, 10]
    for slope in (2.0, 7.0):
        Line(slope, 1.0).draw.configure(device=device).over(out)(x, out)
        assert out.tolist() == [slope * v + 1 for v in x]
    Filter.fill.configure(device=device)[4, 1](out, 3.0)
    assert out.tolist() == [3, 3, 3, 3]
    assert "f64" in Line(1.0, 2.0).draw.inspect("f64[4]", "f64[4]", stage="ir")


def test_a_kernel_of_a_class_is_the_kernel():
    x, out = np.arange(4.0), np.zeros(4)
    Line.draw.over(out)(Line(2.0, 0.5), x, out)
    assert out.tolist() == [0.5, 2.5, 4.5, 6.5]
    with pytest.raises(cp.LaunchError, match="E409"):
        Line(1.0, 2.0).draw(x, out)


def generated(number: int, name: str, *, is_late: bool = False, head: str = "@cp.cube\n") -> Any:
    """A function whose text only `linecache` has, under a name that others have, too."""
    text = f"{head}def kernel(x, out):\n{BODY}".replace("* 2", f"* {number}")
    entry = len(text), None, text.splitlines(True), name
    scope: dict[str, Any] = {"__name__": "__main__", "cp": cp}
    if not is_late:
        linecache.cache[name] = entry
    exec(compile(text, name, "exec"), scope)
    if is_late:
        linecache.cache[name] = entry
    return scope["kernel"]


@pytest.mark.parametrize("is_late", [False, True])
def test_generated_texts_that_share_a_name(is_late: bool):
    kernels = {n: generated(n, f"<generated {is_late}>", is_late=is_late) for n in (3, 4, 5)}
    for n, kernel in kernels.items():
        out = np.full_like(X, np.nan)
        kernel[X.size, 1](X, out)
        np.testing.assert_array_equal(out, n * X)


def test_an_error_shows_the_text_of_its_kernel():
    kernel = generated(3, "<wrong>", head="@cp.cube\n#\n")
    kernel.function.__globals__.pop("cp")
    generated(4, "<wrong>", head="@cp.cube\n# other\n")
    with pytest.raises(cp.CompileError, match=r"E102.*`cp`") as caught:
        kernel[X.size, 1](X, np.zeros(4))
    assert "ABSOLUTE_POS" in str(caught.value)


def test_a_helper_whose_text_is_lost_is_refused():
    helper = generated(3, "<helpers>", head="")
    generated(4, "<helpers>", head="")

    @cp.cube
    def kernel(x: Any, out: Any):
        helper(x, out)

    with pytest.raises(cp.CompileError, match="E105"):
        kernel[X.size, 1](X, np.zeros(4))


def linecached(text: str, name: str, found: str) -> Any:
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    scope: dict[str, Any] = {"cp": cp, "__name__": "__main__"}
    exec(compile(text, name, "exec"), scope)
    return scope[found]


def test_texts_that_compile_to_the_same_code():
    """Annotations of locals leave no trace in it."""
    head = "@cp.cube\ndef kernel(x, out):\n    i = cp.ABSOLUTE_POS\n"
    kernels = {
        dtype: linecached(
            f"{head}    v: cp.{dtype} = x[i]\n    out[i] = v / 3\n", "<dtypes>", "kernel"
        )
        for dtype in ("f32", "f16")
    }
    x = np.full(4, 100.7, np.float32)
    for dtype, kernel in kernels.items():
        out = np.zeros_like(x)
        kernel[4, 1](x, out)
        exact = x.astype({"f32": np.float32, "f16": np.float16}[dtype])
        np.testing.assert_allclose(out, exact / 3, rtol=1e-3 if dtype == "f16" else 1e-6)
        assert (dtype == "f16") == (out[0] < 33.565)


def test_another_operator_is_another_text():
    triple = linecached("f = lambda v: v * 3\n", "<operators>", "f")
    linecached("f = lambda v: v + 3\n", "<operators>", "f")

    @cp.cube
    def kernel(x: Any, out: Any):
        out[cp.UNIT_POS] = triple(x[cp.UNIT_POS])

    with pytest.raises(cp.CompileError, match="E105"):
        kernel[1, X.size](X, np.zeros(4))


def test_code_that_a_tool_has_added_to_is_read():
    text: str = f"@cp.cube\ndef kernel(x, out):\n{BODY}"
    tree = ast.parse(text)
    tree.body[0].body.insert(0, ast.parse("__hook = 1").body[0])  # type: ignore[attr-defined]
    lines: list[str] = [*text.splitlines(True)]
    linecache.cache["<hooks>"] = len(text), None, lines, "<hooks>"
    scope: dict[str, Any] = {"cp": cp, "__name__": "__main__"}
    exec(compile(ast.fix_missing_locations(tree), "<hooks>", "exec"), scope)
    doubles(scope["kernel"])


def test_few_texts_without_files_are_kept():
    for k in range(100):
        linecached(f"@cp.cube\ndef kernel(x):\n    x[0] = {k}\n", f"<kept {k}>", "kernel")
    assert sum(name.startswith("<kept") for name in edited._texts) <= 64


def test_text_that_linecache_has_dropped():
    kernel = generated(2, "<dropped>")
    del linecache.cache["<dropped>"]
    doubles(kernel)
