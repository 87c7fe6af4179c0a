"""What constants have from their classes, which may change also where the constants may not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp


@dataclass(frozen=True)
class Config:
    n: int = 2
    SCALE = 3

    def scaled(self) -> int:
        return self.n * self.SCALE

    @property
    def above(self) -> int:
        return self.SCALE + 1


class Point(NamedTuple):
    a: int

    def scaled(self) -> int:
        return self.a * self.factor  # type: ignore[attr-defined]


class Shifted(tuple[int, ...]):
    shift = 4

    def __len__(self) -> int:
        return self.shift

    def __getitem__(self, k: Any) -> Any:
        return self.shift + k


@dataclass(frozen=True)
class Open:
    n: int = 2

    def __getattr__(self, name: str) -> int:
        if name == "wide":
            return 7
        raise AttributeError(name)

    def doubled(self) -> int:
        return 2 * self.wide


CONFIG, POINT, SHIFTED, OPEN = Config(), Point(2), Shifted((1, 2)), Open()
FORMS: dict[str, tuple[Any, type, str]] = {
    "a method of a frozen dataclass": (lambda: CONFIG.scaled(), Config, "SCALE"),
    "its property": (lambda: CONFIG.above, Config, "SCALE"),
    "a method of a named tuple": (lambda: POINT.scaled(), Point, "factor"),
    "the length of a tuple": (lambda: len(SHIFTED), Shifted, "shift"),
    "its items": (lambda: SHIFTED[1], Shifted, "shift"),
    "what hides `__getattr__`": (lambda: OPEN.wide, Open, "wide"),
    "the same in a method": (lambda: OPEN.doubled(), Open, "wide"),
}


def made(find: Any) -> Any:
    @cp.cube
    def kernel(out: Any):
        out[cp.UNIT_POS] = find()

    out = np.zeros(1)
    return kernel, lambda: (kernel[1, 1](out), out[0])[1]


@pytest.mark.parametrize("name", FORMS)
def test_members_of_classes_are_compared(name: str, monkeypatch: pytest.MonkeyPatch):
    find, cls, member = FORMS[name]
    monkeypatch.setattr(Point, "factor", 3, raising=False)
    _, run = made(find)
    assert run() == find()
    for value in (10, 11):
        monkeypatch.setattr(cls, member, value, raising=False)
        assert run() == find()


def test_another_getattr(monkeypatch: pytest.MonkeyPatch):
    _, run = made(lambda: OPEN.wide)
    assert run() == 7
    monkeypatch.setattr(Open, "__getattr__", lambda self, name: 12)
    assert run() == 12


def test_tuples_with_attributes_of_their_own():
    shifted = Shifted((1, 2))
    _, run = made(lambda: shifted.shift)
    assert run() == 4
    shifted.shift = 11
    assert run() == 11


class Named(np.ndarray):
    n = 2


def test_arrays_with_attributes_of_their_own():
    numbers = np.zeros(3).view(Named)
    _, run = made(lambda: numbers.n)
    assert run() == 2
    for value in (7, 9):
        numbers.n = value
        assert run() == value


class Reading:
    @property
    def found(self) -> int:
        raise ValueError("mine")


class Asking:
    def __bool__(self) -> bool:
        raise ValueError("mine")


class Finding:
    def __getattr__(self, name: str) -> int:
        raise ValueError("mine")


class Showing:
    def __repr__(self) -> str:
        raise ValueError("mine")


READING, ASKING, FINDING, SHOWING = Reading(), Asking(), Finding(), Showing()
RAISED: dict[str, tuple[Any, str]] = {
    "property": (lambda: READING.found, "found"),
    "choice": (lambda: 1 if ASKING else 2, "__bool__"),
    "and": (lambda: ASKING and 2, "__bool__"),
    "attribute": (lambda: FINDING.other, "__getattr__"),
    "value": (lambda: SHOWING, "__repr__"),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_the_users_code_raises_is_no_defect_of_the_compiler(name: str):
    find, function = RAISED[name]
    _, run = made(find)
    with pytest.raises(cp.CompileError, match=rf"E113.*ValueError: mine, in `{function}` \(test_c"):
        run()


def test_functions_that_are_registered_later():
    @singledispatch
    def found(value: Any) -> int:
        return 2

    _, run = made(lambda: found(3))
    assert run() == 2
    found.register(int)(lambda value: 5)
    assert run() == 5
