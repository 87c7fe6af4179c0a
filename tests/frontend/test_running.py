"""What Python runs at comptime may depend on: a change of any of it gives other code."""

import enum
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp

FACTOR = 1
TABLE = (10.0, 20.0, 30.0, 40.0)
KERNELS: list[Any] = []


class Held:
    """An object whose attributes may be anything."""

    x: Any
    inner: Any


class Special:
    """What Python calls unasked reads a global name."""

    def __index__(self):
        return FACTOR

    def __float__(self):
        return FACTOR * 1.5

    def __int__(self):
        return FACTOR + 10

    def __str__(self):
        return "a" * FACTOR

    def __format__(self, form):
        return "b" * FACTOR

    def __eq__(self, other):
        return FACTOR == 3

    def __hash__(self):
        return FACTOR

    def __getattr__(self, name):
        return FACTOR * 3.0


class Derived(Special):
    """It inherits all of it."""


@dataclass
class Prepared:
    x: float

    def __post_init__(self):
        self.x *= FACTOR


@dataclass(frozen=True)
class Made:
    x: float = field(default_factory=lambda: FACTOR * 2.0)


class Initialised:
    def __init__(self):
        self.x = FACTOR * 5.0

    @property
    def twice(self):
        return self.x * 2


class New:
    def __new__(cls):
        found = object.__new__(cls)
        found.x = FACTOR * 6.0
        return found

    x: float


class Assigned:
    x: float

    @property
    def y(self):
        return self.x

    @y.setter
    def y(self, value):
        self.x = value * FACTOR


class Adder:
    def __call__(self, other):
        return other * FACTOR


class Odd:
    """Special methods that are no functions of Python."""

    __add__ = Adder()
    __mul__ = functools.partialmethod(lambda self, n, other: other * FACTOR + n, 2)


class Kind(enum.Enum):
    ONE = 1
    THREE = 3

    @classmethod
    def _missing_(cls, value: object):
        return cls(FACTOR)


class Placed:
    __match_args__ = ("x",)
    x: float


HELD, SPECIAL, DERIVED, ODD, PLACED = Held(), Special(), Derived(), Odd(), Placed()
OBJECTS, BY_NAME = [Held()], {"a": Held()}
NAMESPACE = SimpleNamespace()


def tagged():
    return 1


def reset() -> None:
    global FACTOR
    FACTOR = 1
    for owner in (HELD, NAMESPACE, OBJECTS[0], BY_NAME["a"], tagged):
        vars(owner).clear()
    HELD.inner = Held()
    HELD.inner.x = PLACED.x = OBJECTS[0].x = BY_NAME["a"].x = 1.0
    setattr(tagged, "x", 1.0)  # noqa: B010 - functions have no such attribute, say type checkers


def change() -> None:
    global FACTOR
    FACTOR = 3
    for owner in (HELD, HELD.inner, NAMESPACE, OBJECTS[0], BY_NAME["a"], tagged, PLACED):
        setattr(owner, "x", 7.0)  # noqa: B010


def or_one(owner):
    return getattr(owner, "x", 1.0)


def by_name(owner, name):
    return getattr(owner, f"{name}", 1.0)


def tried(owner):
    try:
        return owner.x
    except AttributeError:
        return 1.0


def through(owner):
    return x_of(owner.inner)


def x_of(owner):
    return owner.x


def weighed(a, b):
    return a * FACTOR + b


def turned(v):
    return v * (2 - FACTOR)


@functools.cache
def kept_result():
    return FACTOR * 1.0


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "getattr": lambda v: getattr(HELD, "x", 1.0),
    "hasattr": lambda v: 5.0 if hasattr(HELD, "x") else 1.0,
    "hasattr of a namespace": lambda v: 5.0 if hasattr(NAMESPACE, "x") else 1.0,
    "getattr that Python runs": lambda v: or_one(HELD),
    "getattr of a computed name": lambda v: by_name(HELD, "x"),
    "an attribute that is tried": lambda v: tried(HELD),
    "attributes of functions": lambda v: tagged.x,  # type: ignore[attr-defined]
    "attrgetter": lambda v: operator.attrgetter("inner.x")(HELD),
    "objects in lists": lambda v: sum_of_objects(),
    "objects in dictionaries": lambda v: of_dictionary(),
    "objects through helpers": lambda v: through(HELD),
    "all attributes": lambda v: all_of_them(),
    "__index__": lambda v: TABLE[SPECIAL],  # type: ignore[index]
    "inherited __index__": lambda v: TABLE[DERIVED],  # type: ignore[index]
    "__float__": lambda v: float(SPECIAL),
    "__int__": lambda v: int(SPECIAL),
    "__str__": lambda v: len(str(SPECIAL)),
    "__format__": lambda v: len(f"{SPECIAL}"),
    "__eq__": lambda v: 1.0 if SPECIAL in (5, 6) else 2.0,
    "__getattr__": lambda v: SPECIAL.whatever,
    "special methods inside": lambda v: special_inside(),
    "__post_init__": lambda v: Prepared(3.0).x,
    "__post_init__ inside": lambda v: prepared_inside(),
    "default_factory": lambda v: Made().x,
    "__init__": lambda v: Initialised().x,
    "a property of a new object": lambda v: Initialised().twice,
    "__new__": lambda v: New().x,
    "reduce": lambda v: functools.reduce(weighed, (1, 2, 3)),
    "a function in a keyword": lambda v: chosen((3, 1, 2), key=turned),
    "what an assignment does": lambda v: assigned_inside(),
    "an object in place of a special method": lambda v: odd_sum(),
    "a special method with an argument": lambda v: odd_product(),
    "_missing_": lambda v: Kind(7).value,
    "an attribute in a pattern": lambda v: matched(HELD.inner),
    "an attribute in a pattern by its place": lambda v: matched_by_place(PLACED),
}


def assigned_inside():
    made = Assigned()
    made.y = 2.0
    return made.y


def odd_sum():
    return ODD + 2.0  # type: ignore[operator]


def odd_product():
    return ODD * 2.0  # type: ignore[operator]


def matched(value):
    match value:
        case Held(x=found):
            return found
    return 0.0


def matched_by_place(value):
    match value:
        case Placed(found):
            return found
    return 0.0


def all_of_them():
    return sum(v for v in vars(HELD).values() if isinstance(v, float))


def sum_of_objects():
    return sum(o.x for o in OBJECTS)


def of_dictionary():
    return BY_NAME["a"].x


def special_inside():
    return float(SPECIAL) + int(SPECIAL)


def prepared_inside():
    return Prepared(3.0).x


def chosen(values, key):
    return max(values, key=key)


@pytest.mark.parametrize("is_inlined", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_change_of_what_python_reads(name: str, is_inlined: bool):
    function = FUNCTIONS[name]

    @cp.cube
    def kernel(out):
        out[0] = function(out[0] if is_inlined else 0)

    def launched() -> Any:
        out = np.zeros(1)
        kernel[1, 1](out)
        return out[0]

    reset()
    before = function(0)
    assert launched() == before
    change()
    assert function(0) != before
    assert launched() == function(0)
    reset()
    assert launched() == before


def test_a_cached_function_is_noted_by_what_it_caches():
    @cp.cube
    def kernel(out):
        out[0] = kept_result()

    out, reference = np.zeros(1), np.zeros(1)
    for _ in range(2):
        kept_result.cache_clear()
        kernel[1, 1](out)
        kernel.function(reference)
        assert out[0] == reference[0]
        change()
    reset()
