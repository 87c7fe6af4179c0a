"""What counts of a tuned function: all that may change what it does."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.sources import source_of
from cubepy.cache.plain import plain_bytes

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

def of_import(x, out, *, config):
    from kernels_of_test import deep as found
    found(x, out)
"""
NAMES = ("of_module", "of_table", "of_static", "of_partial", "of_object", "of_function")
NAMES += ("of_import",)


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


PREAMBLE = """
import collections, dataclasses, enum, fractions, functools, pathlib, types
import numpy as np
import cubepy as cp
"""
SCALE_TEXT = "@cp.cube\ndef k(x):\n    x[0] = HERE\n"
CLASS = "class C:\n  "
EDITS = {
    "a module that two functions name": (
        "H = types.ModuleType('H')\nexec('a = lambda: HERE\\nb = 1', H.__dict__)\ndef g(): H.b\n",
        "g(); H.a()",
    ),
    "a base's method": (f"{CLASS}def t(self): return HERE\nclass D(C): pass\nd = D()\n", "d.t()"),
    "a base's attribute": (f"{CLASS}T = HERE\nclass D(C): pass\n", "D.T"),
    "an attribute that a method reads": (
        f"{CLASS}T = HERE\n  def t(self): return self.T\nc = C()\n",
        "c.t()",
    ),
    "a property that a method reads": (
        f"{CLASS}@property\n  def p(self): return HERE\n  def t(self): return self.p\nc = C()\n",
        "c.t()",
    ),
    "cached_property": (
        f"{CLASS}@functools.cached_property\n  def p(self): return HERE\nc = C()\n",
        "c.p",
    ),
    "partialmethod": (
        f"{CLASS}def m(self, a): return a\n  p = functools.partialmethod(m, HERE)\nc = C()\n",
        "c.p()",
    ),
    "a text names it": (f"{CLASS}T = HERE\n", "getattr(C, 'T')"),
    "a metaclass": (
        "class M(type):\n  def h(c): return HERE\nclass C(metaclass=M): pass\n",
        "C.h()",
    ),
    "an enum's method": (
        "class E(enum.Enum):\n  A = 1\n  def t(self): return HERE\nS = E.A\n",
        "S",
    ),
    "slots": (f"{CLASS}__slots__ = ('t',)\nc = C(); c.t = HERE\n", "c.t"),
    "a data class with slots": (
        "@dataclasses.dataclass(frozen=True, slots=True)\nclass C:\n  t: int\nc = C(HERE)\n",
        "c.t",
    ),
    "lru_cache": ("@functools.lru_cache\ndef h(): return HERE\n", "h()"),
    "wraps of a package's function": ("@functools.wraps(np.pad)\ndef h(): return HERE\n", "h()"),
    "singledispatch": (
        "@functools.singledispatch\ndef h(x): return 1\n@h.register\ndef _(x: int): return HERE\n",
        "h(1)",
    ),
    "a function's attribute": ("def h(): return h.t\nh.t = HERE\n", "h()"),
    "try": ("def h():\n  try: return g(HERE)\n  except OSError: return 1\n", "h()"),
    "a kernel's body": (SCALE_TEXT, "k[1, 1](x)"),
    "a kernel's body behind its launcher": (f"{SCALE_TEXT}L = k[8, 256]\n", "L(x)"),
    "a kernel's grid": ("@cp.cube\ndef k(x): x[0] = 1\nL = k[8, HERE]\n", "L(x)"),
    "a kernel of an object": (
        f"{CLASS}@cp.cube\n  def k(self, x): x[0] = HERE\nL = C().k[8, 256]\n",
        "L(x)",
    ),
    "a kernel's types": (
        "T = (0, cp.f32, 0, cp.f64)[HERE]\n@cp.cube\ndef k(x: cp.Tensor[T]): x[0] = 1\n",
        "k[1, 1](x)",
    ),
    "a tuned function": (
        "@cp.autotuned(space={'a': (1, 2)})\ndef t(x, *, config): open; return HERE\n",
        "t(x)",
    ),
    "the space of a tuned function": (
        "@cp.autotuned(space={'a': (1, HERE)})\ndef t(x, *, config): open\n",
        "t(x)",
    ),
    "a tuned kernel's grid": (
        "@cp.autotuned(space={'n': [1]})\n@cp.cube\ndef k(x, n): return\nL = k[lambda c: HERE]\n",
        "L(x)",
    ),
}


@pytest.fixture
def hash_of(tmp_path: Path) -> Any:
    """The hash of a launcher that holds `body`, in a module of a text."""
    made = iter(range(1000))

    def found(text: str, body: str) -> str:
        name = "edited_in_test"
        file = tmp_path / f"{name}_{next(made)}.py"
        head = f"{PREAMBLE}{text}\ndef launcher(x, out, *, config):\n    np.empty(3); open\n"
        file.write_text(f"{head}    {body}\n")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return source_of(module.launcher)

    yield found
    sys.modules.pop("edited_in_test", None)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_counts(edit: str, hash_of: Callable[[str, str], str]):
    text, body = EDITS[edit]
    first, second, again = (hash_of(text.replace("HERE", n), body) for n in "131")
    assert first == again != second


VALUES = [
    *("np.float32(2)", "np.float32(3)", "np.int64(2)", "np.dtype('f4')", "np.dtype('f8')"),
    *("cp.f32", "cp.Line[cp.f32, 4]", "cp.Line[cp.f32, 8]", "cp.zeros(3)", "cp.ones(3)"),
    *("range(3)", "range(4)", "slice(3)", "slice(4)", "collections.deque([3])", "bytearray(b'a')"),
    *("bytearray(b'b')", "collections.deque([4])", "pathlib.Path('a')", "pathlib.Path('b')"),
    *("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)", "collections.Counter(a=1)"),
    *("collections.Counter(a=2)", "[[1], 2]", "[[1, 2]]", "((16,), 8)", "((16, 8),)", "{'a', 'b'}"),
    *("{'a', 'c'}", "[[len], max]", "[[len, max]]", "types.SimpleNamespace(a=1, b=2)"),
    *("types.SimpleNamespace(b=1, a=2)", "np.float32", "np.float64", "cp.Tensor[cp.f32]"),
    *("cp.Tensor", "types.MappingProxyType({'a': 1})", "types.MappingProxyType({'a': 2})"),
    *("__import__('cmath').sin", "__import__('math').sin", "list[int]", "list[str]"),
]


def test_values_count(hash_of: Callable[[str, str], str]):
    found = [hash_of(f"S = {value}", "S") for value in VALUES]
    assert len(set(found)) == len(VALUES)
    assert [hash_of(f"S = {value}", "S") for value in VALUES] == found


@pytest.mark.optional("torch")
def test_values_of_torch_count(hash_of: Callable[[str, str], str]):
    pytest.importorskip("torch")
    values = [
        *("torch.float32", "torch.float16", "torch.zeros(3)", "torch.ones(3)", "torch.zeros(4)"),
        *("torch.zeros(3).bfloat16()", "torch.ones(2, 3).t()", "torch.device('cpu')"),
        *("torch.device('cuda')", "torch.nn.Parameter(torch.zeros(3))"),
    ]
    text = "import torch\nS = {}"
    found = [hash_of(text.format(value), "S") for value in values]
    assert len(set(found)) == len(values)
    learnt = [hash_of(text.format(f"torch.nn.Parameter(torch.{f}(3))"), "S") for f in EQUAL]
    assert learnt == found[-1:] * 2


EQUAL = ("zeros", "ones")


@pytest.mark.parametrize(
    "text",
    [
        "def fa(): return 1\ndef fb(): return 2\nTABLE = [fa, fb]\nUSED = {}\n",
        "fa = [1]\nfb = [2]\nTABLE = (fa, fb)\nUSED = {}\n",
        "class C: pass\nfa, fb = C(), C()\nTABLE = fa, fb\nUSED = {}\n",
    ],
)
def test_which_of_known_objects_counts(text: str, hash_of: Callable[[str, str], str]):
    assert hash_of(text.format("fa"), "TABLE; USED") != hash_of(text.format("fb"), "TABLE; USED")


def test_what_is_remembered_does_not_count():
    """Results of earlier calls that objects of Python keep are no part of a function."""

    class Held:
        @functools.cached_property
        def value(self) -> int:
            return 3

    @functools.lru_cache
    def cached(n: int) -> int:
        return n

    @functools.singledispatch
    def of_type(x: Any) -> int:
        return 1

    of_type.register(int, lambda x: 2)
    held = Held()

    def launcher(x: Any, out: Any, *, config: Any) -> Any:
        return cp.empty(3), held.value, cached(1), of_type(x)

    before = source_of(launcher)
    assert (held.value, cached(4), of_type(1), of_type("a")) == (3, 4, 2, 1)
    assert source_of(launcher) == before


def test_sets_have_one_order_in_all_processes(tmp_path: Path):
    text = (
        "import numpy as np\nfrom cubepy.autotune.sources import source_of\n"
        "S = {'one', 'two', 'three', 'four', ('five', 'six'), len, max}\n"
        "def f(x, out, *, config):\n"
        "    return np.empty(3), x in {'a', 'b', 'c', 'd', 'e'}, S\n"
        "print(source_of(f))\n"
    )
    (tmp_path / "main.py").write_text(text)
    found = set()
    for seed in "012":
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = [sys.executable, str(tmp_path / "main.py")]
        found.add(subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_long_lists_are_read_by_c():
    """A pick of a new signature hashes what a launcher captures: not item by item."""
    large = [[k, (k, "text", {"a": 1.5})] for k in range(1000)]
    same = [[k, (k, "text", {"a": 1.5})] for k in range(1000)]
    assert plain_bytes(large) == plain_bytes(same) is not None
    same[999][1][2]["a"] = 2.5
    assert plain_bytes(large) != plain_bytes(same)
    circle: list[Any] = []
    circle.append(circle)
    doubled: list[Any] = [1]
    for _ in range(30):
        doubled = [doubled, doubled]
    others: list[Any] = [circle, doubled, [len], [np.zeros(3)], [cp.f32], 1]
    assert [plain_bytes(v) for v in others[:5]] == [None] * 5
    assert plain_bytes([1, True, 1.0]) != plain_bytes([1, 1, 1.0]) != plain_bytes((1, 1, 1.0))


def test_modules_that_nothing_imported_yet_are_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))

    def launcher(x: Any, out: Any, *, config: Any) -> Any:
        import late_module_of_test  # type: ignore[import-not-found]

        return late_module_of_test.N

    found: list[str] = []
    for n in (1, 2):
        text = f"raise SystemExit('not asked for')\nN = {n}\n"
        (tmp_path / "late_module_of_test.py").write_text(text)
        importlib.invalidate_caches()
        found.append(source_of(launcher))
    assert found[0] != found[1] and "late_module_of_test" not in sys.modules
