"""Private names of classes, which are read as Python's compiler reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.lang.private import may_be_private

__outside = 3  # no class is around it


@dataclass(frozen=True)
class Line:
    slope: Any
    __start: Any  # pyright: ignore[reportGeneralTypeIssues]
    __STEP = 5

    def __scaled(self, v: Any) -> Any:
        return v * self.slope + self.__start

    @staticmethod
    def __next(v: Any, *, __by: Any = 1) -> Any:
        return v + __by

    @property
    def __twice(self) -> Any:
        return self.slope * 2

    def total(self) -> Any:
        __local = self.__twice
        later = lambda q: q * self.__STEP + __local
        return self.__scaled(2) + self.__next(1) + later(2) + Line.__STEP


class _Of:
    """An object whose class begins with an underscore."""

    __held = 7

    def read(self, v: Any) -> Any:
        return v + self.__held


@dataclass(frozen=True)
class __Hidden:
    value: Any


HELD = _Of()


@cp.cube
def all_of(x: Any, out: Any) -> None:
    out[0] = Line(x[0], x[1]).total()
    out[1] = HELD.read(x[0])
    out[2] = __outside
    out[3] = __Hidden(x[1]).value


def raised(v: Any, **by: Any) -> Any:
    return v + by["__by"]


class Caller:
    def call(self, v: Any) -> Any:
        return raised(v, __by=5)


CALLER = Caller()


@cp.cube
def by_keyword(x: Any, out: Any) -> None:
    out[0] = CALLER.call(x[0])


def test_keywords_of_calls_are_not_mangled():
    out = np.zeros(1)
    by_keyword[1, 1](np.ones(1), out)
    assert out[0] == CALLER.call(1) == 6


def test_names_mean_what_they_mean_in_python():
    x, out = np.array([3.0, 4.0]), np.zeros(4)
    all_of[1, 1](x, out)
    assert out.tolist() == [Line(3.0, 4.0).total(), 10, 3, 4]


def test_what_may_be_private():
    assert all(map(may_be_private, ["self.__x", "__a1 = 3", "f(__b_)", "x.__y.z"]))
    assert not any(map(may_be_private, ["__init__", "a__b", "_x", "x.__len__()", "__", "n__"]))
