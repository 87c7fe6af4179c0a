"""Files that are edited behind their import: Python runs the text of before, and kernels of the
text of now would give other results. They are refused, and nothing else is."""

import ast
import importlib
import itertools
import linecache
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import (
    MAGIC_NUMBER,
    cache_from_source,
    module_from_spec,
    spec_from_file_location,
)
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cubepy as cp

KERNELS = (
    "import cubepy as cp\n@cp.cube\ndef k(x, out):\n    out[0] = h(x[0]) + 1\n"
    "def h(v):\n    return v + 2\n@cp.cube\ndef other(x, out):\n    out[0] = h(x[0]) - 1\n"
)
SECOND = 1_700_000_000
_serial = itertools.count()
bytecode = pytest.mark.parametrize("writes", [True, False], ids=["bytecode", "none"])


class Folder:
    """A folder of modules that Python imports, each time by names that no other test has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, str] = {}

    def write(self, name: str, text: str, at: int | None = None) -> Path:
        """A file whose text names others as `@@name`; `at` is its time in nanoseconds. Without it
        a file that is written again is two seconds newer, so that Python sees it, too."""
        self.names.setdefault(name, f"edited_{next(_serial)}_{name}")
        for each, unique in self.names.items():
            text = text.replace(f"@@{each}", unique)
        file = self.path / f"{self.names[name]}.py"
        later = file.stat().st_mtime_ns + 2 * 10**9 if file.exists() else None
        file.write_text(text)
        stamp = at or later
        if stamp is not None:
            os.utime(file, ns=(stamp, stamp))
        return file

    def load(self, name: str) -> Any:
        """The module, imported anew."""
        importlib.invalidate_caches()
        sys.modules.pop(self.names[name], None)
        return importlib.import_module(self.names[name])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "pycache_prefix", None)
    made = Folder(tmp_path)
    yield made
    for name in made.names.values():
        sys.modules.pop(name, None)


def result(kernel: Any) -> float:
    out = np.zeros(1)
    kernel[1, 1](np.ones(1), out)
    return float(out[0])


def refuses(kernel: Any, file: Path, words: str = "edited after Python imported it; import it"):
    with pytest.raises(cp.CompileError, match=f"E105(.|\n)*`{file.name}`.*{words}"):
        result(kernel)


@bytecode
@pytest.mark.parametrize("edit", [("v + 2", "v + 7"), ("+ 1", "+ 4"), ("import", "\n\nimport")])
def test_a_kernel_and_what_its_file_holds(edit: Any, writes: bool, folder: Any, monkeypatch: Any):
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    file = folder.write("kernels", KERNELS)
    module = folder.load("kernels")
    assert os.path.exists(cache_from_source(str(file))) == writes
    if edit[0] == "import":
        assert result(module.k) == 4
    folder.write("kernels", KERNELS.replace(edit[0], edit[1], 1))
    refuses(module.other if edit[0] == "import" else module.k, file)
    assert result(folder.load("kernels").k) == {"v + 2": 9, "+ 1": 7, "import": 4}[edit[0]]


@bytecode
@pytest.mark.parametrize("edit", [("v + 2", "v + 7"), ("+ 1", "+ 4")])
def test_within_a_second(edit: Any, writes: bool, folder: Any, monkeypatch: Any):
    """Python itself then takes the bytecode of before, as it compares seconds and sizes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    file = folder.write("kernels", KERNELS, SECOND * 10**9)
    module = folder.load("kernels")
    os.utime(file, ns=(SECOND * 10**9 + 1, SECOND * 10**9 + 1))
    if writes:
        cached = cache_from_source(str(file))
        os.utime(cached, ns=(SECOND * 10**9 + 10_000_000, SECOND * 10**9 + 10_000_000))
    folder.write("kernels", KERNELS.replace(edit[0], edit[1], 1), SECOND * 10**9 + 20_000_000)
    refuses(module.k, file, "touch it and import it" if writes else "import it again")
    again = folder.load("kernels")
    if writes:
        assert again.h(0) == module.h(0)
        refuses(again.k, file, "touch it and import it")
        os.utime(file)
        again = folder.load("kernels")
    assert result(again.k) == {"v + 2": 9, "+ 1": 7}[edit[0]]


@bytecode
@pytest.mark.parametrize("edited", ["helpers", "deepest"])
@pytest.mark.parametrize("way", ["from @@helpers import h", "import @@helpers as m"])
def test_a_helper_of_another_file(
    way: str, edited: str, writes: bool, folder: Any, monkeypatch: Any
):
    monkeypatch.setattr(sys, "dont_write_bytecode", not writes)
    files = {"deepest": folder.write("deepest", "def g(v):\n    return v + 2\n")}
    text = "from @@deepest import g\ndef h(v):\n    return g(v) + 2\n"
    files["helpers"] = folder.write("helpers", text)
    called = "m.h" if "as m" in way else "h"
    text = f"import cubepy as cp\n{way}\n@cp.cube\ndef k(x, out):\n    out[0] = {called}(x[0])\n"
    folder.write("kernels", text)
    module = folder.load("kernels")
    folder.write(edited, files[edited].read_text().replace("+ 2", "+ 4"))
    refuses(module.k, files[edited])
    for name in ("deepest", "helpers", "kernels"):
        module = folder.load(name)
    assert result(module.k) == 7


def test_a_helper_edited_before_its_kernel_is_defined(folder: Any, monkeypatch: Any):
    """As in a notebook: only Python's bytecode has what was imported."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = folder.write("helpers", "def h(v):\n    return v + 2\ndef same(v):\n    return v\n")
    helpers = folder.load("helpers")
    folder.write("helpers", file.read_text().replace("+ 2", "+ 7"), 2 * SECOND * 10**9)

    @cp.cube
    def uses(x, out, function: cp.Comptime):
        out[0] = function(x[0])

    out = np.zeros(1)
    uses[1, 1](np.ones(1), out, helpers.same)
    with pytest.raises(cp.CompileError, match=f"E105(.|\n)*`h`(.|\n)*`{file.name}` was edited"):
        uses[1, 1](np.ones(1), out, helpers.h)
    uses[1, 1](np.ones(1), out, folder.load("helpers").h)
    assert out[0] == 8


def test_lambdas_and_kept_code(folder: Any, tmp_path: Path):
    text = (
        "import cubepy as cp\nf = lambda v: v + 2\n@cp.cube\ndef k(x, out):\n    out[0] = f(x[0])\n"
    )
    with cp.settings(cache=True, cache_dir=str(tmp_path / "cache")):
        for _ in range(2):
            folder.write("kernels", text)
            assert result(folder.load("kernels").k) == 3
        module = folder.load("kernels")
        refuses(module.k, folder.write("kernels", text.replace("+ 2", "+ 7")))


def test_modules_and_objects_that_are_lazy(folder: Any):
    """They are left alone where a kernel is defined."""

    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    text = KERNELS.replace("def h", "def i")
    file = folder.write("kernels", text)
    scope: dict[str, Any] = {"h": Lazy("lazy"), "__name__": "lazy_kernels"}
    exec(compile(text, str(file), "exec"), scope)
    scope["h"] = scope["i"]
    assert result(scope["k"]) == 4


@pytest.mark.parametrize("edit", ["", "# more\n", "def more(v):\n    return v\n"])
def test_files_that_hold_the_function_as_before(edit: str, folder: Any):
    folder.write("kernels", KERNELS)
    module = folder.load("kernels")
    folder.write("kernels", KERNELS + edit)
    assert result(module.k) == 4
    folder.write("kernels", KERNELS.replace("- 1", "- 2"))
    assert result(folder.load("kernels").other) == 1


PARTS = (
    "import cubepy as cp\n",
    "def two(v):\n    return cp.floor(v) + 2\n",
    "@cp.cube\ndef k(x, out):\n    out[0] = two(x[0]) + cp.floor(x[0])\n",
    "@cp.cube\ndef other(x, out):\n    out[0] = two(x[0]) * cp.ceil(x[0])\n",
)


def run_part(file: Path, part: int, scope: dict[str, Any], text: str = "".join(PARTS)) -> None:
    """Run a part of a file at its lines, as cells of editors and the guide's tests do."""
    line = text[: text.index(PARTS[part])].count("\n")
    exec(compile("\n" * line + PARTS[part], str(file), "exec", dont_inherit=True), scope)


def test_a_file_that_runs_in_parts(tmp_path: Path):
    """A part without `import` calls the module's functions by other instructions."""
    file, scope = tmp_path / "page.py", {"__name__": "page"}
    file.write_text("".join(PARTS))
    for part in range(len(PARTS)):
        run_part(file, part, scope)
    assert (result(scope["k"]), result(scope["other"])) == (4, 3)


def test_a_file_that_grows_as_it_runs(tmp_path: Path):
    file, scope = tmp_path / "page.py", {"__name__": "page"}
    for part in range(len(PARTS)):
        file.write_text("".join(PARTS[: part + 1]))
        run_part(file, part, scope)
    assert (result(scope["k"]), result(scope["other"])) == (4, 3)


def test_a_part_that_runs_again(tmp_path: Path):
    """Its code is as that of the whole text before, which had no import of the module."""
    file, scope = tmp_path / "page.py", {"__name__": "page", "cp": cp, "two": lambda v: v + 2}
    for head in ("cp\n", PARTS[0]):
        text = head + "".join(PARTS[1:])
        file.write_text(text)
        linecache.checkcache(str(file))
        run_part(file, 2, scope, text)
    assert result(scope["k"]) == 4


class Rewriting(SourceFileLoader):
    """As what tools for tests and types do at the import: other code than the text has."""

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(self.get_data(self.path))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                node.body.insert(0, ast.copy_location(ast.Pass(), node.body[0]))
                node.body.append(ast.copy_location(ast.parse("0 if 0 else 1").body[0], node))
            if isinstance(node, ast.Constant) and node.value == 2:
                node.value = 3
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


@pytest.mark.parametrize("edit", ["", "# more\n"])
def test_code_that_is_not_of_its_text(edit: str, folder: Any):
    file = folder.write("kernels", KERNELS)
    spec = spec_from_file_location("rewritten", file, loader=Rewriting("rewritten", str(file)))
    assert spec is not None and spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module, ModuleType) and module.h(0) == 3
    folder.write("kernels", KERNELS + edit)
    assert result(module.k) == 4


def test_bytecode_of_python_without_columns(folder: Any, tmp_path: Path):
    """It is other code of the same text."""
    file = folder.write("kernels", KERNELS, SECOND * 10**9)
    command = [sys.executable, "-X", "no_debug_ranges", "-m", "compileall", "-q", str(file)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""})
    os.utime(cache_from_source(str(file)), ns=(SECOND * 10**9 - 1, SECOND * 10**9 - 1))
    assert result(folder.load("kernels").k) == 4


@pytest.mark.parametrize("head", [b"", b"0123456789abcdef", MAGIC_NUMBER + bytes(12)])
def test_files_that_are_not_bytecode(head: bytes, folder: Any):
    file = folder.write("kernels", KERNELS, SECOND * 10**9)
    module = folder.load("kernels")
    cached = Path(cache_from_source(str(file)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(head + b"?")
    os.utime(cached, (SECOND - 10, SECOND - 10))
    assert result(module.k) == 4


PROGRAM = """
import numpy as np, cubepy as cp, pathlib

def h(v):
    return v + 2

def same(v):
    return v

def make():
    @cp.cube
    def k(x, out):
        out[0] = x[0] + 2
    return k

file = pathlib.Path(__file__)
file.write_text(file.read_text().replace("return v + 2", "return v + 3").replace("] + 2", "] + 3"))
x, out = np.ones(4), np.zeros(1)
print(cp.kernels.map(same, x)[0])
for run in (lambda: cp.kernels.map(h, x), lambda: make()[1, 1](x, out)):
    try:
        print(run(), out)
    except cp.CompileError as error:
        print("edited" if "program.py` was edited after it began to run" in str(error) else error)
"""


def test_a_program_that_is_edited_while_it_runs(tmp_path: Path):
    """Python keeps no bytecode of it, and its functions are read when they are used."""
    (tmp_path / "program.py").write_text(PROGRAM)
    run = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", "edited", "edited"]


def test_a_kernel_that_lives_longer_than_many_edits(folder: Any, monkeypatch: Any):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder.write("kernels", KERNELS)
    module = folder.load("kernels")
    old, other = module.k, module.other
    for number in range(8):
        text = KERNELS.replace("+ 1", f"+ {number + 4}")
        file = folder.write("kernels", text + f"# {number}\n")
        importlib.reload(module)
    refuses(old, file)
    assert result(other) == 2 and result(module.k) == 14


@pytest.mark.parametrize(
    ("way", "call"),
    [
        ("import @@helpers as m", "m.TABLE['a'](v)"),
        ("from @@helpers import TABLE", "TABLE['a'](v)"),
        ("from @@helpers import C", "C.static(v)"),
        ("from @@helpers import C\nc = C()", "c.method(v)"),
        ("import @@helpers as m", "m.C.static(v)"),
        ("from @@helpers import h\ndef g(v): return h(v)", "g(v)"),
    ],
)
def test_a_helper_that_something_holds(way: str, call: str, folder: Any, monkeypatch: Any):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = (
        "def h(v):\n    return v + 2\nTABLE = {'a': h}\nclass C:\n    @staticmethod\n"
        "    def static(v):\n        return v + 2\n    def method(self, v):\n        return v + 2\n"
    )
    file = folder.write("helpers", text)
    head = f"import cubepy as cp\n{way}\n@cp.cube\ndef k(x, out):\n    v = x[0]\n"
    folder.write("kernels", f"{head}    out[0] = {call}\n")
    module = folder.load("kernels")
    folder.write("helpers", text.replace("+ 2", "+ 7"))
    refuses(module.k, file)
    folder.load("helpers")
    assert result(folder.load("kernels").k) == 8
