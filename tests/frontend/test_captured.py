"""What a kernel captures is compared at each launch, however deep Python reads it."""

import functools
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit import compile as compiling

STEP = (1,)


class Counter:
    """A mutable object whose methods use each other."""

    def __init__(self) -> None:
        self.n = 2

    def total(self, v):
        return self.part(v) + self.n

    def part(self, v):
        return v * (self.n + STEP[0])

    def __call__(self, v):
        return v * self.n

    def __getitem__(self, k):
        return k + self.n


@dataclass(frozen=True)
class Holder:
    """A frozen object that holds a list."""

    items: Any

    def total(self):
        return sum(self.items)

    @property
    def first(self):
        return self.items[0]


COUNTER, HOLDER = Counter(), Holder([1, 2])


def launch(kernel: Any) -> float:
    out = np.zeros(1)
    kernel[1, 1](np.ones(1), out)
    return out[0]


@cp.cube
def by_methods(x, out):
    out[0] = x[0] + COUNTER.total(2)


@cp.cube
def by_call(x, out):
    out[0] = x[0] + COUNTER(3) * 10


@cp.cube
def by_item(x, out):
    out[0] = x[0] + COUNTER[4]


@pytest.mark.parametrize("kernel", [by_methods, by_call, by_item], ids=lambda k: k.__name__)
def test_methods_that_python_runs_on_a_mutable_object(kernel: Any, monkeypatch: pytest.MonkeyPatch):
    def expected() -> float:
        kernel.function(np.ones(1), out := np.zeros(1))
        return out[0]

    assert launch(kernel) == expected()
    monkeypatch.setattr(COUNTER, "n", 9)
    assert launch(kernel) == expected()
    monkeypatch.setitem(globals(), "STEP", (5,))
    assert launch(kernel) == expected()


@cp.cube
def by_field(x, out):
    out[0] = x[0] + HOLDER.items[1]


@cp.cube
def by_total(x, out):
    out[0] = x[0] + HOLDER.total()


@cp.cube
def by_property(x, out):
    out[0] = x[0] + HOLDER.first


@pytest.mark.parametrize("kernel", [by_field, by_total, by_property], ids=lambda k: k.__name__)
def test_lists_that_frozen_objects_hold(kernel: Any):
    before = launch(kernel)
    HOLDER.items[:] = [50, 60]
    assert launch(kernel) >= before + 40
    HOLDER.items[:] = [1, 2]
    assert launch(kernel) == before


@dataclass(frozen=True, eq=False)
class Layers:
    parts: tuple[Any, ...]

    def weight(self, k: int) -> Any:
        return self.parts[k][0]


LAYERS = Layers((np.array([2.0]), [7.0], {0: 3.0}, ([5.0],)))


@cp.cube
def by_method_of_parts(x, out):
    out[0] = x[0] + LAYERS.weight(0)
    for part in LAYERS.parts[:3]:
        out[0] += part[0]


@cp.cube
def by_index_of_parts(x, layers: cp.Comptime[Layers], out):
    out[0] = x[0] + layers.parts[1][0] + layers.parts[3][0][0]


def plain_sum(parts: Any) -> float:
    return parts[2][0] + parts[3][0][0]


@cp.cube
def by_python_of_parts(x, out):
    out[0] = x[0] + plain_sum(LAYERS.parts)


@pytest.mark.parametrize(
    "kernel", [by_method_of_parts, by_index_of_parts, by_python_of_parts], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_what_tuples_of_frozen_objects_hold(kernel: Any, device: str):
    x, out = np.zeros(1), np.zeros(1)
    given = (x, LAYERS, out) if kernel is by_index_of_parts else (x, out)

    def launched() -> float:
        kernel.configure(device=device)[1, 1](*given)
        return out[0]

    before = [launched() for _ in range(3)][-1]
    for n in (10.0, 1.0):
        for held in (LAYERS.parts[0], LAYERS.parts[1], LAYERS.parts[2], LAYERS.parts[3][0]):
            held[0] += n
        rise = launched() - before
        assert rise == n * (4 if kernel is by_method_of_parts else 2)
        before += rise


HELD: Any = None


def sum_of_held():
    found = HELD.items if isinstance(HELD, Holder) else HELD
    values = found.values() if hasattr(found, "values") else found
    return sum(values)


@cp.cube
def by_container(x, out):
    out[0] = x[0] + sum_of_held()


def change_behind(known: dict[str, int]) -> Callable[[Any], None]:
    """A change of the dictionary that a view shows."""
    return lambda _: known.update(a=30)


FIRST, SECOND, THIRD = {"a": 1}, {"a": 1}, {"a": 1}


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (deque([1, 2]), lambda c: c.append(40)),
        (bytearray(b"ab"), lambda c: c.append(40)),
        (array("i", [1, 2]), lambda c: c.append(40)),
        (memoryview(bytearray(b"ab")), lambda c: c.__setitem__(0, 40)),
        (UserList([1, 2]), lambda c: c.append(40)),
        (UserDict(a=1), lambda c: c.update(a=30)),
        (ChainMap({"a": 1}), lambda c: c.update(a=30)),
        (MappingProxyType(FIRST), change_behind(FIRST)),
        (SECOND.values(), change_behind(SECOND)),
        (Holder(deque([1, 2])), lambda c: c.items.append(40)),
        (Holder(MappingProxyType(THIRD)), change_behind(THIRD)),
    ],
    ids=lambda c: type(c).__name__,
)
def test_containers_of_the_standard_library(
    held: Any, change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(globals(), "HELD", held)
    for _ in range(4):  # native code launches from the third on
        assert launch(by_container) == 1 + sum_of_held()
    before = sum_of_held()
    change(held)
    assert sum_of_held() != before
    for _ in range(4):
        assert launch(by_container) == 1 + sum_of_held()


@cp.cube
def by_type(x, out):
    out[0] = 1 if isinstance(HELD[0], list) else 2


def test_the_type_of_what_a_list_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "HELD", [[1]])
    assert launch(by_type) == 1
    HELD[0] = (1,)
    assert launch(by_type) == 2


class Base:
    """A class whose method another one extends."""

    def rate(self):
        return 1


class Extended(Base):
    def rate(self):
        return super().rate() + 1


EXTENDED = Extended()


@cp.cube
def by_super(x, out):
    out[0] = x[0] + EXTENDED.rate()


def test_a_method_that_super_finds(monkeypatch: pytest.MonkeyPatch):
    assert launch(by_super) == 3
    monkeypatch.setattr(Base, "rate", lambda self: 10)
    assert launch(by_super) == 12


LISTED: list[Any] = [0.0, 1, (2, [3])]
NAMED: dict[Any, Any] = {"a": 1, "b": 2}


def shown_table(k):
    return len(repr(LISTED[: k + 1])) * 100 + sum(ord(c) for c in repr(LISTED[: k + 1]))


@cp.cube
def by_table(x, out):
    out[0] = x[0] + shown_table(2)


@cp.cube
def by_flat_table(x, out):
    out[0] = x[0] + shown_table(1)


@cp.cube
def by_names(x, out):
    total = x[0]
    for k, name in enumerate(NAMED):
        total += NAMED[name] * 10 ** (k + 1)
    out[0] = total


@pytest.mark.parametrize(
    "changed",
    [
        [-0.0, 1, (2, [3])],
        [0.0, True, (2, [3])],
        [0.0, 1, (2, [4])],
        [0.0, 1, (2.0, [3])],
        [0, 1, (2, [3])],
    ],
    ids=str,
)
def test_objects_in_a_list_that_are_equal_and_others(changed: list[Any]):
    """Equal ones may be of another type, or zeros of another sign; the same may change inside."""
    before = launch(by_table)
    kept = LISTED[:]
    LISTED[:] = changed
    assert launch(by_table) != before
    LISTED[:] = kept
    assert launch(by_table) == before
    LISTED[2][1][0] = 9
    assert launch(by_table) != before
    LISTED[2][1][0] = 3
    assert launch(by_table) == before


def test_flat_containers_that_change(monkeypatch: pytest.MonkeyPatch):
    """Those that hold the same objects are not looked at closely."""
    monkeypatch.setattr("tests.frontend.test_captured.LISTED", [0.5, 1])
    before, names = launch(by_flat_table), launch(by_names)
    looks: list[Any] = []
    snapshot = compiling._snapshot
    monkeypatch.setattr(compiling, "_snapshot", lambda v: looks.append(v) or snapshot(v))
    assert (launch(by_flat_table), launch(by_names)) == (before, names)
    assert not [v for v in looks if v is LISTED or v is NAMED]
    for now in ([1.5, 1], [1.5], [1.5, 2, 3], [0.5, 2.0, 3]):
        last = launch(by_flat_table)
        LISTED[:] = now
        assert launch(by_flat_table) != last
    NAMED["a"], NAMED["b"] = 2, 1
    assert launch(by_names) != names
    NAMED["b"] = NAMED.pop("b")
    NAMED["a"] = 1
    NAMED["b"] = 2
    assert launch(by_names) == names
    NAMED["a"] = NAMED.pop("a")  # another order
    assert launch(by_names) != names
    NAMED["b"] = NAMED.pop("b")


def doubled(function: Any) -> Any:
    @functools.wraps(function)
    def around(*args):
        return function(*args) * 2

    return around


def doubled_stores(function: Any) -> Any:
    @functools.wraps(function)
    def around(*tensors):
        function(*tensors)
        out = tensors[1]
        out[0] *= 2

    return around


@doubled
def next_of(v):
    return v + 1


def test_a_decorated_helper_has_the_signature_of_what_surrounds_it():
    @cp.cube
    def kernel(x, out):
        out[0] = next_of(x[0]) + next_of(5)

    assert launch(kernel) == 16


@cp.cube
@doubled_stores
def store_next(x, out):
    out[0] = x[0] + 1


def test_a_decorated_kernel_has_the_signature_of_what_surrounds_it():
    assert launch(store_next) == 4


def test_what_stands_above_a_kernel_of_a_class():
    with pytest.raises(TypeError, match="write @staticmethod above @cp.cube"):

        class Holding:
            @cp.cube
            @staticmethod
            def kernel(x, out):
                out[0] = x[0]


def test_what_a_dtype_does_not_have():
    @cp.cube
    def kernel(x, out):
        out[0] = hasattr(x.dtype, "is_flot") + 2 * hasattr(cp.f32, "is_float")
        out[1] = 5 if getattr(cp.f32, "nope", None) is None else 6

    out = np.zeros(2, np.int32)
    kernel[1, 1](np.zeros(2, np.float32), out)
    assert out.tolist() == [2, 5]

    @cp.cube
    def wrong(x, out):
        out[0] = 9 if x.dtype.is_flot else 8

    with pytest.raises(cp.CompileError, match="E107"):
        wrong[1, 1](np.zeros(2, np.float32), out)


def test_getattr_and_hasattr():
    @cp.cube
    def kernel(x, out):
        holder = Holder((x[0], 3))
        out[0] = holder.items[1] + getattr(holder, "nothing", 20)
        out[0] += 100 * hasattr(holder, "first") + 200 * hasattr(x, "sum")

    assert launch(kernel) == 123


def test_a_name_of_an_attribute_is_text():
    @cp.cube
    def kernel(x, out):
        out[0] = getattr(x, 3)  # pyright: ignore[reportArgumentType]

    with pytest.raises(cp.CompileError, match="E207: getattr\\(\\) expects a name"):
        launch(kernel)


def test_a_record_with_a_function_changes_in_a_loop():
    @dataclass(frozen=True)
    class Applied:
        value: Any
        function: Any

    @cp.cube
    def kernel(x, out):
        a = Applied(x[0], lambda v: v + x[0])
        for _ in range(3):
            a = Applied(a.function(a.value), a.function)
        out[0] = a.value

    assert launch(kernel) == 4


class Tuned:
    scale: Any = None


def test_an_attribute_that_was_none_is_compared():
    held = Tuned()

    def pick() -> float:
        return 1.0 if held.scale is None else held.scale

    @cp.cube
    def kernel(out: cp.Tensor):
        out[cp.ABSOLUTE_POS] = pick()

    out = np.zeros(1, np.float32)
    for scale in (None, 3.0, None):
        held.scale = scale
        kernel[1, 1](out)
        assert out[0] == (scale or 1.0)


TABLE = {0: 1.0, 1: 2.0}


def test_keys_of_dictionaries_are_comptime():
    @cp.cube
    def kernel(out: cp.Tensor):
        i = cp.ABSOLUTE_POS
        out[i] = TABLE.get(i, 7.0)

    with pytest.raises(cp.CompileError, match="E108"):
        kernel[1, 1](np.zeros(1, np.float32))


@dataclass(frozen=True)
class Left:
    x: Any

    def __sub__(self, other):
        return self.x - other.x

    def __rsub__(self, other):
        return 1000.0


class Inheriting(Left):
    """It has no reflected method of its own."""


def test_inherited_reflected_methods_come_last():
    @cp.cube
    def kernel(x: cp.Tensor, out: cp.Tensor):
        out[0] = Left(x[0]) - Inheriting(x[1])

    x, out = np.array([5, 2], np.float32), np.zeros(1, np.float32)
    kernel[1, 1](x, out)
    assert out[0] == 3
