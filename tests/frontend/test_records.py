"""Dataclasses and tuples in kernels: rebinding under runtime control, methods and operators."""

import linecache
import re
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend.tracer import Tracer


@dataclass(frozen=True)
class Vec:
    x: Any
    y: Any

    def __add__(self, other):
        return Vec(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Vec(self.x * factor, self.y * factor)

    def __rmul__(self, factor):
        return self * factor

    def __neg__(self):
        return Vec(-self.x, -self.y)

    def plus(self, other):
        return self + other


class Pair(NamedTuple):
    a: Any
    b: Any

    def swapped(self):
        return Pair(self.b, self.a)


def run(kernel, *args):
    out = np.full(2, np.nan, np.float32)
    kernel[1, 1](*args, out)
    return out.tolist()


def test_a_record_that_begins_as_a_constant_changes_in_a_loop():
    @cp.cube
    def kernel(n: int, out):
        p = Vec(1.0, 1.0)
        for i in range(n):
            p = Vec(2.0, 3.0)
        out[0], out[1] = p.x, p.y

    assert run(kernel, 3) == [2, 3]
    assert run(kernel, 0) == [1, 1]


def test_a_record_is_accumulated_in_a_loop():
    @cp.cube
    def kernel(a, out):
        p = Vec(0.0, 0.0)
        for i in range(4):
            p = p.plus(Vec(a, 1.0))
        out[0], out[1] = p.x, p.y

    assert run(kernel, 2.5) == [10, 4]


@pytest.mark.parametrize("a", [2.0, -2.0])
def test_records_and_tuples_are_assigned_in_branches(a):
    @cp.cube
    def record(a, out):
        p = Vec(a, a * 2)
        if a > 0:
            p = p + p
        out[0], out[1] = p.x, p.y

    @cp.cube
    def plain(a, out):
        p = (a, 0.0)
        if a > 0:
            p = (p[1], p[0])
        out[0], out[1] = p

    @cp.cube
    def both_arms(a, out):
        p = Vec(0.0, 0.0)
        if a > 0:
            p = Vec(a, 1.0)
        else:
            p += Vec(1.0, a)
        out[0], out[1] = p.x, p.y

    assert run(record, a) == ([4, 8] if a > 0 else [-2, -4])
    assert run(plain, a) == ([0, 2] if a > 0 else [-2, 0])
    assert run(both_arms, a) == ([2, 1] if a > 0 else [1, -2])


@pytest.mark.parametrize("a", [2.0, -2.0])
def test_views_are_rebound_in_branches(a):
    @cp.cube
    def kernel(x, a, out):
        row = x[0]
        if a > 0:
            row = x[1]
        out[0], out[1] = row[0], row[1]

    x = np.array([[1, 2], [3, 4]], np.float32)
    assert run(kernel, x, a) == ([3, 4] if a > 0 else [1, 2])


def test_operators_and_methods_of_constants_take_runtime_values():
    @cp.cube
    def kernel(a, out):
        unit = Vec(1.0, 2.0)
        p = 3 * -(unit * a) + unit
        p *= 2.0
        q = Pair(p.x, p.y).swapped()
        out[0], out[1] = q

    assert run(kernel, 1.0) == [-8, -4]


def test_a_record_does_not_become_another_class():
    @dataclass(frozen=True)
    class Other:
        x: Any
        y: Any

    @cp.cube
    def kernel(a, out):
        p = Vec(a, a)
        if a > 0:
            p = Other(a, a)
        out[0] = p.x

    with pytest.raises(cp.CompileError, match="E206"):
        run(kernel, 1.0)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("(a[0], 1).index(1)", "E107"),
        ("(a[0], 1).count(1)", "E107"),
        ("len(Vec(a[0], 1))", "E207"),
        ("len(zip(a, a))", "E207"),
        ("isinstance(a[0], cp.f64)", "E207"),
        ("isinstance(a, cp.Tensor)", "E207"),
        ("isinstance(a[0], (int, cp.Array))", "E207"),
        ("isinstance(a[0], 'float')", "E207"),
        ("isinstance(1, None)", "E207"),
        ("isinstance(Vec(a[0], 1), cp.f64)", "E207"),
        ("super().x", "E108"),
    ],
)
def test_what_python_would_do_with_the_compilers_own_values_is_refused(expression: str, code: str):
    names: dict[str, Any] = {"cp": cp, "Vec": Vec}
    text = f"def kernel(a, out):\n    out[0] = {expression}\n"
    file = f"<{expression}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    with pytest.raises(cp.CompileError, match=code):
        cp.cube(names["kernel"])[1, 1](np.zeros(1), np.zeros(1))


def test_comparisons_that_a_class_defines():
    @dataclass(frozen=True)
    class Length:
        metres: Any

        def __lt__(self, other):
            return self.metres < other.metres

        def __eq__(self, other):
            return self.metres == other.metres

    @cp.cube
    def kernel(a, out):
        x, y = Length(a), Length(2.0)
        out[0] = 10 * (x < y) + (x == y)
        out[1] = 10 * (x > y)

    @cp.cube
    def generated(a, out):
        out[0] = Vec(a, a) < Vec(1.0, 1.0)  # pyright: ignore[reportOperatorIssue]

    assert run(kernel, 1.0) == [10, 0]
    assert run(kernel, 2.0) == [1, 0]
    assert run(kernel, 3.0) == [0, 10]
    with pytest.raises(cp.CompileError, match="E201: `<` does not take a `Vec`"):
        run(generated, 1.0)


@dataclass(frozen=True)
class Scaled:
    x: Any

    def half(self):
        step = 0.5
        step = step * 1
        return Scaled(self.x * step)

    def bump(self):
        step = 1
        for _ in range(2):
            step += 1
        return Scaled(self.x + step)

    @property
    def doubled(self):
        k = 2
        for _ in range(1):
            k = k * 1
        return Scaled(self.x * k)

    @property
    def third(self):
        k = 1
        for _ in range(1):
            k = k + self.x
        return Scaled(k)

    def __add__(self, other):
        k = 0
        k = k + other.x
        return Scaled(self.x + k)


def test_calls_that_start_in_one_column_keep_their_locals_apart():
    dtypes: list[Any] = []

    def note(dtype: Any) -> None:
        dtypes.append(dtype)

    @cp.cube
    def kernel(n: cp.i32, a: cp.f64, out):
        note(Scaled(n).half().bump().x.dtype)
        note(Scaled(n).bump().bump().x.dtype)
        note(Scaled(n).doubled.doubled.x.dtype)
        note(Scaled(n).doubled.third.x.dtype)
        note((Scaled(n) + Scaled(n) + Scaled(a)).x.dtype)
        out[0] = Scaled(n).half().bump().x
        out[1] = (Scaled(n) + Scaled(n) + Scaled(a)).x

    out = np.zeros(2)
    kernel[1, 1](7, 0.1, out)
    assert dtypes[-5:] == [cp.f32, cp.i32, cp.i32, cp.i32, cp.f64]
    assert out.tolist() == [6.5, 14.1]


@dataclass(frozen=True)
class Stepped:
    x: Any

    def step(self):
        h = 1.0
        for _ in range(2):
            h += 0.5
        t = self.x * 2
        t = h  # declares a local, unless the one before has the type that h turns out to have
        t = t + self.x
        return Stepped(t)

    def double(self):
        return Stepped(cp.f64(self.x))


def test_what_a_trace_learns_of_a_call_is_not_taken_for_another_call(
    monkeypatch: pytest.MonkeyPatch,
):
    """The second trace declares one local less in the first call; counting locals alone would take
    what was learned of it for the second call, and trace once more."""
    traces: list[Any] = []
    once = Tracer.finish

    def finish(self: Any) -> bool:
        traces.append(self)
        return once(self)

    monkeypatch.setattr(Tracer, "finish", finish)

    @cp.cube
    def kernel(a: cp.f32, out):
        out[0] = Stepped(a).step().double().step().x

    out = np.zeros(1)
    kernel[1, 1](0.5, out)
    assert out[0] == 4.5
    assert len(traces) == 2


@dataclass(frozen=True)
class Defaulted:
    x: Any
    scale: Any = field(default_factory=lambda: 3)
    shift: Any = field(default=1, kw_only=True)
    names: Any = field(default_factory=list, init=False)

    def value(self):
        return self.x * self.scale + self.shift + len(self.names)


def test_default_factories_run_and_fields_without_an_argument_have_their_defaults():
    @cp.cube
    def kernel(x, out):
        out[0] = Defaulted(x[0]).value()
        out[1] = Defaulted(x[0], 10, shift=x[1]).value()

    assert run(kernel, np.array([2, 5], np.float32)) == [7, 25]


@dataclass(frozen=True)
class Checked:
    x: Any
    limit: InitVar[Any]

    def __post_init__(self, limit):
        cp.static_assert(limit > 3, "the limit is too small")
        assert self.x < limit


def test_post_init_runs():
    @cp.cube
    def kernel(x, limit: cp.Comptime[int], out):
        out[0] = Checked(x[0], limit).x

    assert run(kernel, np.array([2], np.float32), 4)[0] == 2
    with pytest.raises(cp.CompileError, match="E114: .*the limit is too small"):
        run(kernel, np.array([2], np.float32), 3)
    with pytest.raises(cp.Error, match="assert"):
        run(kernel.configure(checked=True), np.array([9], np.float32), 4)


@dataclass(frozen=True)
class Plain:
    x: Any
    y: Any


@dataclass(frozen=True)
class Derived:
    x: Any
    twice: Any = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "twice", self.x * 2)


def test_records_that_compare_by_their_fields():
    @cp.cube
    def kernel(x, out):
        p, q = Plain(x[0], 1), Plain(x[1], 1)
        out[0] = p == q
        out[1] = p != Plain(x[0], x[2])

    assert run(kernel, np.array([2, 2, 1], np.float32)) == [1, 0]
    assert run(kernel, np.array([2, 3, 4], np.float32)) == [0, 1]


@dataclass(init=False)
class Own:
    x: Any

    def __init__(self, x):
        self.x = x + 1


@pytest.mark.parametrize(("cls", "name"), [(Derived, "__setattr__"), (Own, "Own")])
def test_what_initialisers_cannot_do_is_refused_by_name(cls: Any, name: str):
    @cp.cube
    def kernel(x, out):
        out[0] = cls(x[0]).x

    with pytest.raises(cp.CompileError, match=f"E108: .*{name}"):
        run(kernel, np.array([2], np.float32))


FACTOR = (2,)


@dataclass(frozen=True)
class Reading:
    """A class whose members read what is around them."""

    x: Any

    def __add__(self, other):
        return (self.x + other.x) * FACTOR[0]

    def __neg__(self):
        return self.x * FACTOR[0]

    def __call__(self, v):
        return v * FACTOR[0]

    def __getitem__(self, k):
        return k + FACTOR[0]

    def __len__(self):
        return FACTOR[0]

    def __bool__(self):
        return bool(FACTOR[0] > 2)

    def __contains__(self, v):
        return v == FACTOR[0]

    def __eq__(self, other):
        return isinstance(other, Reading) and FACTOR[0] == 2

    @property
    def scaled(self):
        return self.x * FACTOR[0]


ONE = Reading(1)


@pytest.mark.parametrize(
    "expression",
    "ONE + {}|-{}|{}(3)|{}[3]|len({})|5 if {} else 6|2 in {}|ONE == {}|ONE != {}|{}.scaled".split(
        "|"
    ),
)
@pytest.mark.parametrize("owner", ["ONE", "Reading(x[0])"])
def test_what_members_read_is_compared_at_each_launch(
    expression: str, owner: str, monkeypatch: pytest.MonkeyPatch
):
    """Also where Python itself runs them, on constants."""
    text = f"def kernel(x, out):\n    out[0] = {expression.format(owner)}\n"
    file = f"<{expression} of {owner}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"Reading": Reading, "ONE": ONE}
    exec(compile(text, file, "exec"), names)
    kernel, x, out = cp.cube(names["kernel"]), np.ones(1), np.zeros(1)
    for factor in (2, 3):
        monkeypatch.setitem(globals(), "FACTOR", (factor,))
        kernel[1, 1](x, out)
        names["kernel"](x, expected := np.zeros(1))
        assert out[0] == expected[0]


def test_a_method_that_is_replaced_in_its_class(monkeypatch: pytest.MonkeyPatch):
    @cp.cube
    def kernel(x, out):
        out[0], out[1] = (Vec(x[0], 1) + Vec(2, 3)).x, -ONE

    assert run(kernel, np.ones(1)) == [3, 2]
    monkeypatch.setattr(Vec, "__add__", lambda self, other: Vec(self.x - other.x, 0))
    monkeypatch.setattr(Reading, "__neg__", lambda self: 77)
    assert run(kernel, np.ones(1)) == [-1, 77]


@dataclass(frozen=True)
class Scale:
    tensor: Any

    @cached_property
    def first(self):
        return self.tensor[0]


def test_a_cached_property_must_not_access_memory():
    """It is computed at each use, and what it reads may be another value by then."""

    @cp.cube
    def kernel(x, out):
        out[0] = Scale(x).first

    with pytest.raises(cp.CompileError, match="E108: the cached property `first`, which accesses"):
        run(kernel, np.ones(1))


@dataclass(frozen=True)
class Counted:
    x: Any
    count: Any = field(init=False, default=3)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("replace(Counted(x[0]), z=1).x", "E106: .*unexpected keyword argument 'z'"),
        ("replace(Counted(x[0]), count=1).x", "E106: .*`count` is a field"),
        ("replace(x[0], count=1).x", "E207: .*an instance of a dataclass"),
        ("Pair(x[0], 1)._replace(c=x[1]).a", "E113: .*'c'"),
        ("type(x[0])", "E207: .*as in v.dtype == cp.f32"),
        ("[v for x[0] in (1, 2)]", "E101"),
    ],
)
def test_what_cannot_be_replaced_is_refused(expression: str, code: str):
    names: dict[str, Any] = {"replace": replace, "Counted": Counted, "Pair": Pair}
    text = f"def kernel(x, out):\n    out[0] = {expression}\n"
    file = f"<{expression}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    with pytest.raises(cp.CompileError) as found:
        cp.cube(names["kernel"])[1, 1](np.zeros(2), np.zeros(2))
    assert re.search(code, str(found.value), re.DOTALL)


@pytest.mark.parametrize(
    "expression",
    [
        "(abs if x[0] > 0 else max)(3)",
        "(Vec(x[0], 1) if x[0] > 0 else (x[1], 2))[0]",
        "((1, 2) if x[0] > 0 else (Vec(1, 1), 2))[1]",
    ],
)
def test_arms_of_an_expression_that_are_of_different_kinds_are_refused(expression: str):
    """Not the second one taken for both."""
    names: dict[str, Any] = {"Vec": Vec}
    text = f"def kernel(x, out):\n    out[0] = {expression}\n"
    file = f"<{expression}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    with pytest.raises(cp.CompileError, match="E212: a condition chooses between"):
        cp.cube(names["kernel"])[1, 1](np.zeros(2), np.zeros(2))
