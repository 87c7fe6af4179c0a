"""What a kernel means, before and after a change: texts of modules for `test_kept`."""

from __future__ import annotations


def kernel(body: str, before: str = "") -> str:
    """A module with a kernel `k` whose element is `v`."""
    return (
        f"{before}\n@cp.cube\ndef k(x, out):\n    i = cp.ABSOLUTE_POS\n"
        f"    if i < out.size:\n        v = x.flat[i]\n        out.flat[i] = {body}\n"
    )


HELPER = "@cp.cube\ndef h(v):\n    return v * 2 + 1\n"
PLAIN = "def h(n):\n    return n * 2 + 1\n"
CONFIG = "@dataclass(frozen=True)\nclass Config:\n    n: int = {n}\n    def scaled(self):\n"
CONFIG += "        return self.n * {m}\nconfig = Config()\n"
MUTABLE = "class Config:\n    def __init__(self):\n        self.n = {n}\n"
MUTABLE += "    def scaled(self):\n        return self.n * {m}\nconfig = Config()\n"
ENUM = "import enum\nclass Mode(enum.Enum):\n    A = {a}\n    B = 7\n"
POINT = "@dataclass(frozen=True)\nclass P:\n    a: cp.f32\n    b: cp.f32 = {b}\n"
POINT += "    def dot(self):\n        return self.a * {c} + self.b\n"
PREPARED = "@dataclass(frozen=True)\nclass P:\n    a: int\n    def __post_init__(self):\n"
PREPARED += "        object.__setattr__(self, 'a', self.a * {c})\n"
MADE = "def make(n):\n    @cp.cube\n    def inner(v):\n        return v * n\n"
MADE += "    return inner\nh = make({n})\n"
FACTORY = "def make(n):\n    @cp.cube\n    def k(x, out):\n        i = cp.ABSOLUTE_POS\n"
FACTORY += "        if i < out.size:\n            out.flat[i] = x.flat[i] * n\n"
FACTORY += "    return k\nk = make({n})\n"
DEEP = "@cp.cube\ndef g(v):\n    return v {op} 3\n@cp.cube\ndef h(v):\n    return g(v) + 1\n"
PARTIAL = "from functools import partial\ndef g(n, v): return v * n\nh = partial(g, {n})"
ADDED = "class C:\n    def __add__(self, n):\n        return n + {n}\nc = C()\n"
NESTED = "@cp.cube\ndef h(v):\n    def g(w):\n        return w * {n}\n    return g(v)\n"
NAMED = "from typing import NamedTuple\nclass P(NamedTuple):\n    a: cp.f32\n"
NAMED += "    b: cp.f32 = {b}\n    def dot(self):\n        return self.a * 2 + self.b\n"
INIT = "from dataclasses import InitVar, field\n@dataclass(frozen=True)\nclass P:\n    a: int\n"
INIT += "    n: InitVar[int] = {n}\n    b: int = field(init=False, default=0)\n"
INIT += "    def __post_init__(self, n):\n        object.__setattr__(self, 'b', self.a * n)\n"
SLOTS = "@dataclass(frozen=True, slots=True)\nclass P:\n    a: int\n    b: int = {n}\n"
WRAPPED = "import functools, textwrap\n@functools.wraps(np.broadcast_to)\ndef h(v):\n"
WRAPPED += "    return v * {n}\n"
GETTER = "class C:\n    @property\n    def n(self):\n        return {n}\nc = C()\n"
SETTER = "class C:\n    @property\n    def n(self): return self.m\n"
SETTER += "    @n.setter\n    def n(self, value): self.m = value * {n}\n"
SETTER += "def h():\n    c = C()\n    c.n = 2\n    return c.n\n"
CACHED = "from functools import lru_cache\nclass C:\n    @lru_cache\n"
CACHED += "    def __getitem__(self, k): return k + {n}\nc = C()\n"
CALLED = "class Adder:\n    def __call__(self, k): return k + {n}\n"
CALLED += "class C:\n    __add__ = Adder()\nc = C()\n"
SLOT = "class C(int):\n    __add__ = int.{name}\nc = C(3)\n"
MATCHED = "class C:\n    __match_args__ = ('n',)\n    n = {n}\nc = C()\n"
MATCHED += "def h():\n    match c:\n        case C({pattern}):\n            return found\n"
MISSING = "import enum\nclass Mode(enum.Enum):\n    A = 2\n    B = 3\n    @classmethod\n"
MISSING += "    def _missing_(cls, value): return cls.{name}\n"
MORE = "import dataclasses\n@dataclass\nclass C:\n"
MORE += "    n: int = dataclasses.field(default=1, metadata={{'tile': {n}}})\n"
MORE += "def h(): return dataclasses.fields(C)[0].metadata['tile']\n"
ABSTRACT = "import abc, numbers\nclass A(abc.ABC): pass\nclass B(A): pass\nclass C: pass\nc = C()\n"
ABSTRACT += "{name}.register(C)\ndef h(): return 2 if isinstance(c, {asked}) else 3\n"
PROTOCOL = "import typing\n@typing.runtime_checkable\nclass A(typing.Protocol):\n"
PROTOCOL += "    def {name}(self): ...\nclass C:\n    def one(self): ...\nc = C()\n"
PROTOCOL += "def h(): return 2 if isinstance(c, A) else 3\n"
ALIAS = "import typing\nclass C:\n    n = {n}\nT = list[C]\n"
ALIAS += "def h(): return typing.get_args(T)[0].n\n"

CHANGES: dict[str, tuple[str, str]] = {
    "the body": (kernel("v * 2"), kernel("v * 3")),
    "a literal's type": (kernel("v * 2 + 1"), kernel("v * 2 + True")),
    "the sign of zero": (kernel("v * 0.0"), kernel("v * -0.0")),
    "a helper": (kernel("h(v)", HELPER), kernel("h(v)", HELPER.replace("2", "3"))),
    "a helper of a helper": (
        kernel("h(v)", DEEP.format(op="*")),
        kernel("h(v)", DEEP.format(op="-")),
    ),
    "a helper's default": (
        kernel("h(v)", "@cp.cube\ndef h(v, n=2):\n    return v * n\n"),
        kernel("h(v)", "@cp.cube\ndef h(v, n=5):\n    return v * n\n"),
    ),
    "a helper's annotation": (
        kernel("h(v)", "T = cp.f32\n@cp.cube\ndef h(v: T):\n    return v * 0.1\n"),
        kernel("h(v)", "T = cp.f16\n@cp.cube\ndef h(v: T):\n    return v * 0.1\n"),
    ),
    "a postponed annotation": (
        kernel("h(v)", "T = cp.f32\n@cp.cube\ndef h(v: 'T'):\n    return v * 0.1\n"),
        kernel("h(v)", "T = cp.f16\n@cp.cube\ndef h(v: 'T'):\n    return v * 0.1\n"),
    ),
    "an annotation of a local": (
        kernel("h(v)", "T = cp.f64\n@cp.cube\ndef h(v):\n    r: T = v\n    return r * 0.1\n"),
        kernel("h(v)", "T = cp.f32\n@cp.cube\ndef h(v):\n    r: T = v\n    return r * 0.1\n"),
    ),
    "a global": (kernel("v * N", "N = 2"), kernel("v * N", "N = 3")),
    "a global's type": (kernel("v // N", "N = 2"), kernel("v // N", "N = 2.0")),
    "a global of NumPy": (
        kernel("v * N", "N = np.float32(0.1)"),
        kernel("v * N", "N = np.float64(0.1)"),
    ),
    "a dtype": (kernel("T(v)", "T = cp.i32"), kernel("T(v)", "T = cp.u8")),
    "a NumPy dtype": (kernel("T(v)", "T = np.int32"), kernel("T(v)", "T = np.int16")),
    "a tuple": (kernel("v * N[1]", "N = (1, 2)"), kernel("v * N[1]", "N = (1, 4)")),
    "a list": (kernel("v * N[1]", "N = [1, 2]"), kernel("v * N[1]", "N = [1, 4]")),
    "an array": (
        kernel("v * N[1]", "N = np.array([1, 2])"),
        kernel("v * N[1]", "N = np.array([1, 4])"),
    ),
    "an array that is indexed at run time": (
        kernel("v * N[i % 2]", "N = np.array([1, 2])"),
        kernel("v * N[i % 2]", "N = np.array([1, 4])"),
    ),
    "a table": (
        kernel("v * N[i % 2]", "N = (1.5, 2.5)"),
        kernel("v * N[i % 2]", "N = (1.5, 4.5)"),
    ),
    "a dictionary": (
        kernel("v * N['a']", "N = {'a': 2}"),
        kernel("v * N['a']", "N = {'a': 3}"),
    ),
    "a name that hides a built-in": (
        kernel("max(v, 1)"),
        kernel("max(v, 1)", "def max(a, b):\n    return a + b\n"),
    ),
    "which function a name means": (
        kernel("h(v)", "def a(v): return v * 2\ndef b(v): return v * 3\nh = a\n"),
        kernel("h(v)", "def a(v): return v * 2\ndef b(v): return v * 3\nh = b\n"),
    ),
    "a closure's value": (kernel("h(v)", MADE.format(n=2)), kernel("h(v)", MADE.format(n=3))),
    "a kernel's closure": (FACTORY.format(n=2), FACTORY.format(n=3)),
    "a lambda": (kernel("h(v)", "h = lambda v: v * 2"), kernel("h(v)", "h = lambda v: v * 3")),
    "a function in a tuple": (
        kernel("H[0](v)", "H = (lambda v: v * 2,)"),
        kernel("H[0](v)", "H = (lambda v: v * 3,)"),
    ),
    "a partial's argument": (
        kernel(
            "h(v)", "from functools import partial\ndef g(n, v): return v * n\nh = partial(g, 2)"
        ),
        kernel(
            "h(v)", "from functools import partial\ndef g(n, v): return v * n\nh = partial(g, 3)"
        ),
    ),
    "what Python runs": (kernel("v * h(4)", PLAIN), kernel("v * h(4)", PLAIN.replace("1", "2"))),
    "a global of what Python runs": (
        kernel("v * h(4)", "M = 3\ndef h(n): return n * M\n"),
        kernel("v * h(4)", "M = 4\ndef h(n): return n * M\n"),
    ),
    "a table of what Python runs": (
        kernel("v * h(1)", "M = np.array([1.5, 2.5])\ndef h(n): return float(M[n])\n"),
        kernel("v * h(1)", "M = np.array([1.5, 3.5])\ndef h(n): return float(M[n])\n"),
    ),
    "a field's default": (
        kernel("v * config.n", CONFIG.format(n=2, m=1)),
        kernel("v * config.n", CONFIG.format(n=3, m=1)),
    ),
    "a method": (
        kernel("v * config.scaled()", CONFIG.format(n=2, m=1)),
        kernel("v * config.scaled()", CONFIG.format(n=2, m=2)),
    ),
    "an attribute": (
        kernel("v * config.n", MUTABLE.format(n=2, m=1)),
        kernel("v * config.n", MUTABLE.format(n=3, m=1)),
    ),
    "a method of an object": (
        kernel("v * config.scaled()", MUTABLE.format(n=2, m=1)),
        kernel("v * config.scaled()", MUTABLE.format(n=2, m=2)),
    ),
    "what a method reads": (
        kernel("v * config.scaled()", MUTABLE.format(n=2, m=1)),
        kernel("v * config.scaled()", MUTABLE.format(n=5, m=1)),
    ),
    "an enumeration": (
        kernel("v * Mode.A.value", ENUM.format(a=2)),
        kernel("v * Mode.A.value", ENUM.format(a=3)),
    ),
    "a dataclass made inside": (
        kernel("P(v).dot()", POINT.format(b=1.0, c=2)),
        kernel("P(v).dot()", POINT.format(b=1.5, c=2)),
    ),
    "a method of a dataclass made inside": (
        kernel("P(v).dot()", POINT.format(b=1.0, c=2)),
        kernel("P(v).dot()", POINT.format(b=1.0, c=3)),
    ),
    "__post_init__": (
        kernel("v * P(3).a", PREPARED.format(c=2)),
        kernel("v * P(3).a", PREPARED.format(c=3)),
    ),
    "a class's constant": (
        kernel("v * C.N", "class C:\n    N = 2\n"),
        kernel("v * C.N", "class C:\n    N = 3\n"),
    ),
    "a base class's constant": (
        kernel("v * C.N", "class B:\n    N = 2\nclass C(B): pass\n"),
        kernel("v * C.N", "class B:\n    N = 3\nclass C(B): pass\n"),
    ),
    "an operator of a class": (
        kernel(
            "v * (c + 1)", "class C:\n    def __add__(self, n):\n        return n + 1\nc = C()\n"
        ),
        kernel(
            "v * (c + 1)", "class C:\n    def __add__(self, n):\n        return n + 2\nc = C()\n"
        ),
    ),
    "a property": (kernel("v * c.n", GETTER.format(n=2)), kernel("v * c.n", GETTER.format(n=3))),
    "a function that wraps one of a library": (
        kernel("v * h(2.5)", WRAPPED.format(n=1)),
        kernel("v * h(2.5)", WRAPPED.format(n=2)),
    ),
    "a class of code without a module": (
        kernel("v * C.N", "d = {}\nexec('class C: N = 2', d)\nC = d['C']\n"),
        kernel("v * C.N", "d = {}\nexec('class C: N = 3', d)\nC = d['C']\n"),
    ),
    "a default of a NamedTuple": (
        kernel("P(v).dot()", NAMED.format(b=1.0)),
        kernel("P(v).dot()", NAMED.format(b=1.5)),
    ),
    "a default of a class with slots": (
        kernel("v * P(3).b", SLOTS.format(n=2)),
        kernel("v * P(3).b", SLOTS.format(n=5)),
    ),
    "an argument of __init__ alone": (
        kernel("v * P(3).b", INIT.format(n=2)),
        kernel("v * P(3).b", INIT.format(n=5)),
    ),
    "a number of a class of its own": (
        kernel("v * int(N + 1)", "class Int(int): pass\nN = Int(3)\n"),
        kernel("v * int(N + 1)", "class Int(int): pass\nN = Int(4)\n"),
    ),
    "a list of a class of its own": (
        kernel("v * len(N)", "class List(list): pass\nN = List([1, 2])\n"),
        kernel("v * len(N)", "class List(list): pass\nN = List([1, 2, 3])\n"),
    ),
    "a small float's type": (
        kernel("cp.f32(cp.f8e4m3(v))", "import ml_dtypes\n"),
        kernel("cp.f32(cp.f8e5m2(v))", "import ml_dtypes\n"),
    ),
    "a dtype of another package": (
        kernel("cp.f32(T(v))", "import ml_dtypes\nT = ml_dtypes.float8_e4m3fn\n"),
        kernel("cp.f32(T(v))", "import ml_dtypes\nT = ml_dtypes.float8_e5m2\n"),
    ),
    "which function of a library": (
        kernel("v * h(2.5)", "h = math.floor\n"),
        kernel("v * h(2.5)", "h = math.ceil\n"),
    ),
    "a function of a library that was replaced": (
        kernel(
            "v * m.h(2.5)", "from types import SimpleNamespace\nm = SimpleNamespace(h=math.floor)\n"
        ),
        kernel(
            "v * m.h(2.5)", "from types import SimpleNamespace\nm = SimpleNamespace(h=math.ceil)\n"
        ),
    ),
    "what an assignment to a property does": (
        kernel("v * h()", SETTER.format(n=2)),
        kernel("v * h()", SETTER.format(n=3)),
    ),
    "a special method that remembers": (
        kernel("v * c[1]", CACHED.format(n=2)),
        kernel("v * c[1]", CACHED.format(n=3)),
    ),
    "an object in place of a special method": (
        kernel("v * (c + 1)", CALLED.format(n=2)),
        kernel("v * (c + 1)", CALLED.format(n=3)),
    ),
    "a special method of Python's": (
        kernel("v * (c + 4)", SLOT.format(name="__mul__")),
        kernel("v * (c + 4)", SLOT.format(name="__sub__")),
    ),
    "an attribute that a pattern names": (
        kernel("v * h()", MATCHED.format(n=2, pattern="n=found")),
        kernel("v * h()", MATCHED.format(n=3, pattern="n=found")),
    ),
    "an attribute that a pattern finds by its place": (
        kernel("v * h()", MATCHED.format(n=2, pattern="found")),
        kernel("v * h()", MATCHED.format(n=3, pattern="found")),
    ),
    "what an enumeration takes other values for": (
        kernel("v * Mode(7).value", MISSING.format(name="A")),
        kernel("v * Mode(7).value", MISSING.format(name="B")),
    ),
    "what a field says of itself": (
        kernel("v * h()", MORE.format(n=2)),
        kernel("v * h()", MORE.format(n=3)),
    ),
    "a class that an abstract one knows": (
        kernel("v * h()", ABSTRACT.format(name="A", asked="A")),
        kernel("v * h()", ABSTRACT.format(name="abc.ABC", asked="A")),
    ),
    "a class that one below an abstract one knows": (
        kernel("v * h()", ABSTRACT.format(name="B", asked="A")),
        kernel("v * h()", ABSTRACT.format(name="abc.ABC", asked="A")),
    ),
    "a class that one of Python's knows": (
        kernel("v * h()", ABSTRACT.format(name="numbers.Real", asked="numbers.Number")),
        kernel("v * h()", ABSTRACT.format(name="abc.ABC", asked="numbers.Number")),
    ),
    "what a protocol asks for": (
        kernel("v * h()", PROTOCOL.format(name="one")),
        kernel("v * h()", PROTOCOL.format(name="other")),
    ),
    "a class in an alias": (
        kernel("v * h()", ALIAS.format(n=2)),
        kernel("v * h()", ALIAS.format(n=3)),
    ),
    "a function that is named as a word": (
        kernel("v * h(2)", "import functools\n@functools.wraps(cp.sqrt)\ndef h(n): return n * 2\n"),
        kernel("v * h(2)", "import functools\n@functools.wraps(cp.sqrt)\ndef h(n): return n * 3\n"),
    ),
    "a number that is too long to be written": (
        kernel("v * (N % 10)", "N = 10**5000 + 2\n"),
        kernel("v * (N % 10)", "N = 10**5000 + 3\n"),
    ),
    "a nested function": (
        kernel(
            "h(v)", "@cp.cube\ndef h(v):\n    def g(w):\n        return w * 2\n    return g(v)\n"
        ),
        kernel(
            "h(v)", "@cp.cube\ndef h(v):\n    def g(w):\n        return w * 3\n    return g(v)\n"
        ),
    ),
}
