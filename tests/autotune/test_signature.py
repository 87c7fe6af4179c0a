"""What a call's signature holds: equal ones let `key` and `valid` go unasked."""

from __future__ import annotations

import gc
import threading
import weakref
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.description import MOST_PARTS
from cubepy.autotune.signature import arrays_of, signature
from tests.autotune.test_autotuned import arrays, scaled_by


class Box:
    """An ordinary object."""

    def __init__(self, x: Any, name: str = "box") -> None:
        self.x, self.name = x, name

    def method(self) -> None:
        """A method."""


class Slotted:
    """An object without a dictionary, which says that it has a value."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted)

    def __hash__(self) -> int:
        return 1


class Number(int):
    """A value with attributes."""

    x: Any = None


@dataclass
class Held:
    """A dataclass with more than its fields."""

    x: Any

    def __post_init__(self) -> None:
        self.more: Any = self.x


def number(x: Any) -> Number:
    made = Number(3)
    made.x = x
    return made


HOLDERS: dict[str, Any] = {
    "tuple": lambda x: (1, x),
    "list": lambda x: [1, x],
    "deque": lambda x: deque([x]),
    "dict": lambda x: {"x": x},
    "nested": lambda x: {"a": [{"b": Box((x,))}]},
    "object": Box,
    "slots": Slotted,
    "number": number,
    "dataclass": Held,
    "namespace": lambda x: SimpleNamespace(x=x),
    "method": lambda x: Box(x).method,
    "partial": lambda x: partial(max, x),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_arrays_is_described_by_their_metadata(name: str):
    make = HOLDERS[name]
    first, same, other = make(np.ones(3)), make(np.zeros(3)), make(np.ones(4))
    assert signature((first,), {}) == signature((same,), {}) is not None
    assert hash(signature((first,), {})) == hash(signature((same,), {}))
    assert signature((first,), {}) != signature((other,), {})
    assert signature((), {"a": first}) != signature((), {"a": other})


def test_objects_that_refer_to_themselves_are_described():
    def ring(size: int) -> Box:
        box = Box(np.ones(size))
        box.name = [box, {"box": box}]  # pyright: ignore[reportAttributeAccessIssue]
        return box

    assert signature((ring(3),), {}) == signature((ring(3),), {}) is not None
    assert signature((ring(3),), {}) != signature((ring(4),), {})


@pytest.mark.parametrize(
    "value", [array("f", [1.0]), {"a": bytearray(3)}, [0] * (MOST_PARTS + 1), Box(array("f"))]
)
def test_what_cannot_be_described_is_not_remembered(value: object):
    asked: list[object] = []

    def valid(config: Any, target: Any, problem: Any) -> bool:
        asked.append(problem)
        return True

    tuned = cp.autotuned(lambda x, out, more, config: None, space={"n": (1, 2)}, valid=valid)
    x, out = arrays()
    assert signature((x, out, value), {}) is None
    with cp.tuning(level="off"):
        for _ in range(3):
            tuned(x, out, value)
    assert len(asked) == 6


def test_code_and_handles_are_what_they_are():
    lock = threading.Lock()
    for value in (np.sin, len, Box, np, lock, np.dtype("f4"), cp.f32, scaled_by({"n": (1,)})):
        assert signature((value,), {}) == signature((value,), {}) is not None
    assert signature((lock,), {}) != signature((threading.Lock(),), {})
    assert signature((1,), {}) != signature((1.0,), {}) != signature((np.float64(1.0),), {})


def test_a_signature_keeps_nothing_alive():
    def function() -> None:
        pass

    box, x = Box(np.ones(3)), np.ones(3)
    kept = signature((box, [x], {"x": x}, function), {"box": box})
    refs = [weakref.ref(value) for value in (box, x, function)]
    del box, x, function
    gc.collect()
    assert kept is not None and not any(ref() is not None for ref in refs)


@pytest.mark.parametrize("hold", [dict, SimpleNamespace, lambda **held: [dict(held)]])
def test_valid_is_asked_again_when_the_contents_change(store: object, hold: Any):
    kept = hold(x=0, out=0)

    def held() -> dict[str, Any]:
        found = kept[0] if isinstance(kept, list) else kept
        return found if isinstance(found, dict) else vars(found)

    @cp.autotuned(
        space={"n": (4, 1)},
        key=lambda a: (held()["out"].size,),
        valid=lambda config, target, problem: problem[0] % config["n"] == 0,
    )
    def scaled(a, *, config):
        return config["n"]

    with cp.tuning(level="off"):
        for size, n in ((1000, 4), (1002, 1), (1000, 4)):
            held()["x"], held()["out"] = arrays((size,))
            assert scaled(kept) == n == scaled.pick(kept)["n"]


def test_arrays_in_dictionaries_are_part_of_the_problem():
    x, y = arrays()
    assert [m.shape for m in arrays_of(({"x": x, "y": [y]},), {"more": {"z": x}})] == [(300,)] * 3


class Private:
    """An object whose slot Python renames."""

    __slots__ = ("__x",)

    def __init__(self, x: int) -> None:
        self.__x = x

    @property
    def x(self) -> int:
        return self.__x


class First(StrEnum):
    A = "a"


class Second(StrEnum):
    A = "a"


class Unhashable(Enum):
    A = 1

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


class Items(list[Any]):
    """A list with attributes."""


def named_items(items: list[Any], **attributes: Any) -> Items:
    found = Items(items)
    found.__dict__.update(attributes)
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Private(1), Private(2)),
        (First.A, Second.A),
        (deque([1], 1), deque([1])),
        (defaultdict(int), defaultdict(list)),
        (named_items(["a", 1]), named_items([], a=1)),
        (0.0, -0.0),
        (np.float32(0.0), np.float32(-0.0)),
        (Decimal("1.0"), Decimal("1.00")),
        (range(0, 3, 2), range(0, 4, 2)),
        (datetime(2026, 1, 1, fold=0), datetime(2026, 1, 1, fold=1)),
        (1, True),
        (1, 1.0),
    ],
)
def test_what_differs_is_described_by_other_signatures(first: Any, second: Any):
    assert signature((first,), {}) != signature((second,), {})
    assert signature((first,), {}) == signature((first,), {})


def test_what_has_no_hash_is_not_remembered_or_is_itself():
    hash(signature((Unhashable.A,), {}))
    assert signature((float("nan"),), {}) == signature((float("nan"),), {})
