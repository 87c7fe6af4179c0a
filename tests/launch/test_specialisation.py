"""When kernels are compiled again, and when not: comptime keys, captures, functions, options."""

from __future__ import annotations

import enum
import linecache
import math
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded

X = np.arange(8, dtype=np.float32)
SCALE = 2.0
TABLE = [1.0, 2.0]
NAMES: dict[str, Any] = {"bias": 3.0}
ARRAY = np.ones(3, np.float32)
CONFIG = types.SimpleNamespace(bias=1.0, nested=types.SimpleNamespace(deep=1))


class Settings:
    bias = 1.0


@cp.cube
def apply(x, out, f: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(x.flat[i])


@cp.cube
def describe(out, value: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = kind_of(value)


def kind_of(value: Any) -> float:
    """A number that distinguishes equal values of different types."""
    if isinstance(value, tuple):
        own = 100.0 if hasattr(value, "_fields") else 200.0
        return own + sum(kind_of(v) for v in value)
    if isinstance(value, frozenset):
        return 400.0 + sum(kind_of(v) for v in value)
    if hasattr(value, "a"):
        return 300.0 + kind_of(value.a)
    if type(value) is np.float32 or isinstance(value, float):
        kind = 4.0 if math.copysign(1.0, value) > 0 else 5.0
        return kind if type(value) is float else 10 * kind + (type(value) is np.float32)
    if isinstance(value, complex):
        return 60.0 + kind_of(value.real) + 10.0 * kind_of(value.imag)
    return {bool: 1.0, int: 2.0, str: 3.0}.get(type(value), 6.0)


def result(launcher: Any, *args: Any) -> float:
    out = Guarded(X.shape)
    launcher.over(out.array)(*[out.array if a is ... else a for a in args])
    assert (out.array == out.array[0]).all()
    return float(out.array[0])


class Pair(NamedTuple):
    a: Any


@dataclass(frozen=True)
class Holder:
    a: Any


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize("order", [1, -1])
def test_comptime_keys_include_types(order: int, compiled: list[Any]):
    values = [
        1,
        1.0,
        True,
        "1",
        0.0,
        -0.0,
        (1,),
        (1.0,),
        (True,),
        ((1,),),
        ((1.0,),),
        Pair(1),
        Pair(1.0),
        Holder(1),
        Holder(1.0),
        Holder(True),
        Holder((1,)),
        Holder((1.0,)),
        frozenset({1}),
        frozenset({1.0}),
        frozenset({0.0}),
        frozenset({-0.0}),
        (frozenset({(True,)}),),
        (frozenset({(1,)}),),
        np.float32(0.0),
        np.float32(-0.0),
        np.float64(0.0),
        np.float64(-0.0),
        Pair(np.float32(0.0)),
        Pair(np.float32(-0.0)),
        0j,
        -0j,
        complex(-0.0, 0.0),
        Colour.RED,
    ][::order]
    for _ in range(2):
        for value in values:
            assert result(describe, ..., value) == kind_of(value), value
    assert len(compiled) <= len(values)


def test_comptime_values_are_compared_by_the_short_way_too():
    @cp.cube
    def times(x, out, n: cp.Comptime[int]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * n

    out = np.empty_like(X)
    launch = times.over(out)
    for n in (2, 2, 3, 2, 3, True, 1):
        launch(X, out, n)
        assert (out == X * n).all()


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_the_sign_of_not_a_number(device: str):
    @cp.cube
    def sign(out, value: cp.Comptime):
        out[0] = math.copysign(1.0, value)

    out, launch = np.zeros(1), sign.configure(device=device)[1, 1]
    for value in (math.nan, -math.nan, math.nan, 0.0, -0.0, -math.nan):
        for _ in range(3):
            launch(out, value)
            assert out[0] == math.copysign(1.0, value)


def test_not_a_number_compiles_once_for_each_object(compiled: list[Any]):
    for _ in range(3):
        assert result(describe, ..., math.nan) == 4.0
    assert len(compiled) == 1


def test_unhashable_comptime_arguments():
    for value in ([1], {"a": 1}, {1}, np.ones(2), Holder([1])):
        with pytest.raises(cp.LaunchError, match=r"E412.*`value`.*hash") as caught:
            describe.over(4)(np.empty(4, np.float32), value)
        assert isinstance(caught.value, TypeError)


# Functions


def test_a_lambda_in_a_loop_compiles_once(compiled: list[Any]):
    for _ in range(5):
        assert result(apply, np.ones_like(X), ..., lambda v: v * 3) == 3
    assert len(compiled) == 1


def test_lambdas_of_one_line():
    for k, f in enumerate((lambda v: v + 1, lambda v: v + 2, lambda v: (lambda u: u + 3)(v))):
        assert result(apply, np.zeros_like(X), ..., f) == k + 1
    functions = [lambda v: v - 1, lambda v: v - 2]
    more = lambda v: v - 3
    assert [result(apply, np.zeros_like(X), ..., f) for f in (*functions, more)] == [-1, -2, -3]


def test_captured_values_of_lambdas(compiled: list[Any]):
    for _ in range(2):
        for n in (1, 1.5, True, 0.0, -0.0):
            found = result(apply, np.zeros_like(X), ..., lambda v, m=n: v * 0 + m + n)
            assert found == 2 * n
    assert len(compiled) <= 5


def test_defaults_of_lambdas():
    functions = [lambda v, k=k: v + k for k in range(3)]
    assert [result(apply, np.zeros_like(X), ..., f) for f in functions] == [0, 1, 2]
    keyword = [lambda v, *, k=k: v + k for k in range(3)]
    assert [result(apply, np.zeros_like(X), ..., f) for f in keyword] == [0, 1, 2]


def test_a_recursive_function():
    def halve(v: Any, n: int = 3) -> Any:
        return v if n == 0 else halve(v / 2, n - 1)

    assert result(apply, np.full_like(X, 16), ..., halve) == 2


def from_text(text: str, name: str, **names: Any) -> Any:
    """What `f` is after the text has run, as a notebook cell of that name."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {"cp": cp, **names}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def test_equal_code_with_other_globals():
    text = "f = lambda v: v + BIAS\n"
    functions = [from_text(text, "<cell 1>", BIAS=b) for b in (1.0, 7.0)]
    assert [result(apply, np.zeros_like(X), ..., f) for f in functions] == [1, 7]


def test_equal_code_with_other_annotations():
    """Annotations of locals leave no trace in a code object."""
    text = "def f(v):\n    big: cp.{0} = 2049.0\n    return v + cp.f32(big)\n"
    functions = [from_text(text.format(t), f"<cell {t}>") for t in ("f32", "f16")]
    assert [result(apply, np.zeros_like(X), ..., f) for f in functions] == [2049, 2048]
    kernel = "@cp.cube\n" + text.replace("(v)", "(v, f)").replace("return v +", "v[0] =")
    for t in ("f32", "f16"):
        k = from_text(kernel.format(t), f"<kernel {t}>")
        out = np.zeros(1, np.float32)
        k[1, 1](out, 0)
        assert out[0] == (2049 if t == "f32" else 2048)


# Captures


@cp.cube
def captures(out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = SCALE + TABLE[1] + NAMES["bias"] + CONFIG.bias + Settings.bias + helper(0.0)


def helper(v: Any) -> Any:
    return v + SCALE * CONFIG.nested.deep


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.setitem(globals(), "SCALE", 5.0),
        lambda m: m.setitem(globals(), "TABLE", [1.0, 9.0]),
        lambda m: m.setitem(NAMES, "bias", 8.0),
        lambda m: m.setattr(CONFIG, "bias", 7.0),
        lambda m: m.setattr(CONFIG.nested, "deep", 4),
        lambda m: m.setattr(Settings, "bias", 6.0),
        lambda m: m.setitem(globals(), "helper", lambda v: v + 11.0),
        lambda m: m.setitem(globals(), "SCALE", np.float64(5.0)),
    ],
)
def test_changed_captures_compile_again(change: Any, compiled: list[Any]):
    def expected() -> float:
        return SCALE + TABLE[1] + NAMES["bias"] + CONFIG.bias + Settings.bias + helper(0.0)

    before = expected()
    assert result(captures, ...) == before == result(captures, ...)
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        assert expected() != before
        assert result(captures, ...) == expected() == result(captures, ...)
    count = len(compiled)
    assert result(captures, ...) == before
    assert len(compiled) == count, "the first form is still there"


@cp.cube
def calls_pythons_own(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = max(x.flat[i], 5.0)


def shorter(v: Any) -> Any:
    return min(v, 5.0)


@cp.cube
def calls_one_that_does(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = shorter(x.flat[i])


def count_names() -> int:
    return len(NAMES)


@cp.cube
def runs_one_at_comptime(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + count_names()


@pytest.mark.parametrize(
    ("kernel", "name", "ours", "before", "after"),
    [
        (calls_pythons_own, "max", lambda a, b: a + b, np.maximum(X, 5), X + 5),
        (calls_one_that_does, "min", lambda a, b: a - b, np.minimum(X, 5), X - 5),
        (runs_one_at_comptime, "len", lambda names: 7, X + 1, X + 7),
    ],
)
@pytest.mark.parametrize("launches", [1, 4])  # native code launches from the third on
def test_names_of_pythons_own_may_be_defined_later(
    kernel: Any, name: str, ours: Any, before: Any, after: Any, launches: int, compiled: list[Any]
):
    out = np.zeros_like(X)
    fresh = cp.cube(kernel.function)
    launch, bound = fresh.over(out), fresh.over(out).bind(X, out)

    def results(expected: Any) -> None:
        for run in (*[lambda: launch(X, out)] * launches, bound):
            out[:] = 0
            run()
            np.testing.assert_array_equal(out, expected)

    results(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), name, ours)
        results(after)
    results(before)
    assert len(compiled) == 2, "both forms are still there"


FOUND: Any = None


@cp.cube
def describe_captured(out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = kind_of(FOUND)


def test_captured_values_are_compared_with_their_types(monkeypatch: pytest.MonkeyPatch):
    values = [2, 2.0, True, 1, 0.0, -0.0, 0j, -0j, np.float32(0.0), np.float32(-0.0), (0.0,)]
    values += [(-0.0,), frozenset({0.0}), frozenset({-0.0}), frozenset({0}), Holder(0), Holder(0.0)]
    for order in (values, values[::-1]):
        for value in order:
            monkeypatch.setitem(globals(), "FOUND", value)
            for _ in range(3):
                assert result(describe_captured, ...) == kind_of(value), value


def test_containers_that_change_in_place():
    numbers, names = [1.0], {"a": [2.0]}

    @cp.cube
    def kernel(out):
        out[0] = numbers[0] + names["a"][0]

    out = np.zeros(1, np.float32)
    for step in range(3):
        numbers[0] += step
        names["a"][0] += 10 * step
        kernel[1, 1](out)
        assert out[0] == numbers[0] + names["a"][0]


def test_equal_captures_compile_once(compiled: list[Any]):
    for _ in range(3):

        def inner(v):
            return v * 2

        @cp.cube
        def kernel(out):
            out[0] = inner(cp.f32(4))

        for _ in range(2):
            out = np.zeros(1, np.float32)
            kernel[1, 1](out)
    assert len(compiled) == 3, "one for each kernel object, not one for each launch"


def test_closure_values_change():
    n = 1

    @cp.cube
    def kernel(out):
        out[0] = n

    out = np.zeros(1, np.int32)
    launch = kernel[1, 1]
    for n in (1, 2, 2, 5):
        launch(out)
        assert out[0] == n


@dataclass(frozen=True)
class Frozen:
    array: np.ndarray


READS = [
    *("ARRAY[k]", "BOX.array[k]", "CELLS['a'][k]", "ITEMS[0][k]", "FROZEN.array[k]"),
    *("(ARRAY * 2)[k] / 2", "default(k)", "outer(k)", "cp.f64(ARRAY[1])", "NAMED.array[k]"),
    *("sum_of(BOX.array) - 4", "[w for w in ARRAY][1]"),
]


class Named(NamedTuple):
    array: np.ndarray


@pytest.mark.parametrize("read", READS)
def test_captured_arrays_are_compared_at_each_launch(read: str):
    array = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    inner = array

    def default(k: Any, table: Any = array) -> Any:
        return table[k]

    def outer(k: Any) -> Any:
        return inner[k]

    scope = {
        "ARRAY": array,
        "BOX": types.SimpleNamespace(array=array),
        "CELLS": {"a": array},
        "ITEMS": (array,),
        "FROZEN": Frozen(array),
        "NAMED": Named(array),
        "default": default,
        "outer": outer,
        "sum_of": lambda a: a[1] + 4,
    }
    text = f"@cp.cube\ndef f(x, out):\n    k = x[0]\n    out[0] = {read}\n"
    launch = from_text(text, f"<array {read}>", **scope)[1, 1]
    x, out = np.array([1], np.int32), np.zeros(1)
    bound = launch.bind(x, out)
    for value in (2.0, 7.0, 7.0, 0.5):
        array[1] = value
        for run in (lambda: launch(x, out), bound):
            out[:] = -1
            run()
            assert out[0] == value


def test_a_captured_array_of_other_layout_or_type_specialises_anew(compiled: list[Any]):
    table = np.array([[1, 2], [3, 4]], np.int32)

    @cp.cube
    def kernel(x, out):
        out[0] = table[x[0], x[1]] // 2.5

    out, at = np.zeros(1), np.array([1, 0])
    launch = kernel[1, 1]
    for changed in (table, table.T, table.astype(np.float64), table.T.copy(), table.copy()):
        table = changed
        launch(at, out)
        assert out[0] == table[1, 0] // 2.5
    assert len(compiled) == 3, "equal content is one specialisation"


def test_functions_are_keyed_by_the_arrays_that_they_capture(compiled: list[Any]):
    @cp.cube
    def apply(f: cp.Comptime, x, out):
        out[0] = f(x[0])

    out, x = np.zeros(1), np.array([2])
    for start in (1.0, 1.0, 5.0):
        weights = np.arange(start, start + 6)
        apply[1, 1](lambda k, weights=weights: weights[k], x, out)
        assert out[0] == weights[2]
        apply[1, 1](lambda k: weights[k] + 1, x, out)
        assert out[0] == weights[2] + 1
    assert len(compiled) == 4


@pytest.mark.parametrize("read", ["ZERO", "DEVICE[0]", "CELLS['a'][0]"])
def test_arrays_that_are_no_constants_are_refused(read: str):
    text = f"@cp.cube\ndef f(out):\n    out[0] = {read}\n"
    device = cp.asarray(np.ones(3))
    scope = {"ZERO": np.array(1.0), "DEVICE": device, "CELLS": {"a": device}}
    out = Guarded(1)
    with pytest.raises(cp.CompileError, match=r"E110(.|\n)*argument"):
        from_text(text, f"<array {read}>", **scope)[1, 1](out.array)
    assert out.is_untouched


@pytest.mark.optional("torch")
def test_captured_tensors_are_refused():
    import torch

    tensor = torch.ones(3)

    @cp.cube
    def kernel(out):
        out[0] = tensor[0]

    with pytest.raises(cp.CompileError, match="E110.*`tensor`"):
        kernel[1, 1](np.zeros(1, np.float32))


def test_errors_are_not_remembered_as_success():
    @cp.cube
    def broken(out):
        out[0] = missing  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    for _ in range(3):
        with pytest.raises(cp.CompileError, match="E102.*`missing`"):
            broken[1, 1](np.zeros(1, np.float32))


# What is part of the signature


def test_same_metadata_compiles_once(compiled: list[Any]):
    for n in (64, 64, 128, 1024):
        x, out = np.ones(n, np.float32), np.empty(n, np.float32)
        apply.over(out)(x, out, abs)
    assert len(compiled) == 1


def test_every_part_of_the_metadata_counts(compiled: list[Any]):
    base = np.ones((8, 8), np.float32)
    for x in (base, base.astype(np.float64), base[0], base.T, base[:, ::2], base[::-1]):
        out = np.empty(x.shape, x.dtype)
        apply.over(out)(x, out, abs)
        np.testing.assert_array_equal(out, x)
    count = len(compiled)
    apply.over(base)(base, base, abs)
    assert len(compiled) > count, "aliased arguments have a form of their own"


def test_options_are_part_of_the_key(compiled: list[Any]):
    @cp.cube
    def plain(out):
        out[0] = cp.f32(1)

    for kernel in (plain, plain.configure(contract=False), plain.configure(fast_math=True)) * 2:
        kernel[1, 1](np.empty(1, np.float32))
    assert len(compiled) == 3


@cp.cube
def doubled(x):
    x[cp.ABSOLUTE_POS] *= 2


def test_devices_of_one_kind_share_code_and_load_it_each_for_itself():
    target = cp.device("cpu").target
    built: list[Any] = []

    def device(name: str) -> Any:
        def load(artifact: Any) -> str:
            built.append(artifact)
            return f"loaded by {name}"

        return types.SimpleNamespace(name=name, target=target, load=load)

    one, two = device("x:0"), device("x:1")
    launcher = doubled[1, 1]
    signature = launcher.kernel.signature_of({"x": cp.spec("f32[4]")}, target, launcher.grid)
    get = launcher.kernel.specialisations.get
    for chosen in (one, two, one, two):
        assert get(signature, chosen).loaded == f"loaded by {chosen.name}"
    assert len(built) == 2 and built[0] is built[1]
