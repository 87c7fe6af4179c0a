"""The data classes of `cubepy.record` behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from cubepy import record


class Meta(type):
    """A class of classes, as `Line` has one."""

    def __getitem__(cls, item: int) -> Any:
        return cls(item, "x")  # type: ignore[call-arg]


def make(dataclass: Any) -> dict[str, Any]:
    """The same classes by either decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)

        def both(self) -> str:
            return f"{self.a}{self.b}"

    @dataclass
    class Open:
        a: int
        b: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            self.b = (*self.b, self.a)

    @dataclass(frozen=True, eq=False, repr=False)
    class Plain:
        a: int

        def __repr__(self) -> str:
            return "mine"

    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int = 3

    @dataclass(frozen=True, slots=True)
    class Typed(metaclass=Meta):
        a: int
        b: str

    @dataclass
    class Special:
        a: int
        shared: ClassVar[int] = 5

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    found = {k: v for k, v in locals().items() if isinstance(v, type)}
    found.pop("dataclass", None)
    return found | make_others(dataclass)


def make_others(dataclass: Any) -> dict[str, Any]:
    """Classes whose fields are passed by name, or not all compared."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        a: int
        b: int = 2
        c: list[int] = field(default_factory=list)
        d: int

    @dataclass(frozen=True, slots=True)
    class Partly:
        a: int
        b: Any = field(default=None, compare=False)

    return {"Named": Named, "Partly": Partly}


OURS, THEIRS = make(record.dataclass), make(dataclasses.dataclass)


def raised(call: Any) -> Any:
    """The type of what a call raises."""
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def outcomes(made: dict[str, Any]) -> list[Any]:
    """What the classes of one decorator do, as data."""
    point, opened = made["Point"](1), made["Open"](2, (5,))
    derived, typed = made["Derived"](1), made["Typed"][7]
    return [
        repr(point).split(".")[-1],
        point == made["Point"](1, "b", []),
        point == made["Point"](2),
        point == 3,
        point.both(),
        [f.name for f in fields(point)],
        [f.type for f in fields(point)],
        replace(point, a=9).a,
        made["Point"](1).c is made["Point"](1).c,
        made["Point"].__match_args__,
        hasattr(point, "__dict__"),
        is_dataclass(point),
        opened.b,
        hasattr(opened, "__dict__"),
        made["Open"].__hash__ is None,
        repr(made["Plain"](1)),
        made["Plain"](1) == made["Plain"](1),
        made["Own"](1) == made["Own"](2),
        hash(derived) == hash(made["Derived"](1, 3)),
        (derived.a, derived.b, replace(derived, b=4).b),
        (typed.a, typed.b),
        made["Special"](1).shared,
        [f.name for f in fields(made["Special"])],
        made["Empty"]() == made["Empty"](),
        repr(made["Named"](d=1, a=2)).split(".")[-1],
        made["Named"](a=1, d=2) == made["Named"](d=2, a=1, b=2, c=[]),
        made["Named"].__match_args__,
        [f.kw_only for f in fields(made["Named"])],
        replace(made["Named"](a=1, d=2), b=5).b,
        raised(lambda: made["Named"](1, d=2)),
        raised(lambda: made["Named"](a=2)),
        made["Partly"](1, 2) == made["Partly"](1, 3),
        made["Partly"](1, 2) == made["Partly"](2, 2),
        hash(made["Partly"](1, 2)) == hash(made["Partly"](1, [])),
        made["Partly"](1, 2).b,
        copy.copy(point).a,
        copy.deepcopy(made["Point"](1, "b", [4])).c,
        made["Point"].__init__.__annotations__,
    ]


def test_they_do_the_same() -> None:
    assert outcomes(OURS) == outcomes(THEIRS)


def test_frozen_ones_keep_their_fields() -> None:
    point = OURS["Point"](1)
    with pytest.raises(FrozenInstanceError):
        point.a = 2
    with pytest.raises(FrozenInstanceError):
        del point.a
    with pytest.raises(TypeError):
        OURS["Point"]()
    with pytest.raises(TypeError):
        OURS["Point"](1, d=2)


@record.dataclass(frozen=True, slots=True)
class Sent:
    """It has a name in its module, as pickle needs."""

    a: int
    b: str = "x"


def test_they_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)
    assert {Sent(1): 1}[Sent(1)] == 1


def test_a_mutable_default_is_an_error() -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @record.dataclass
        class Bad:
            a: list[int] = []  # noqa: RUF012


def test_fields_with_factories_are_made_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library takes ten times as long for a class. Mixed ones are left to it."""

    def theirs(*_: Any, **__: Any) -> Any:
        raise AssertionError("left to the standard library")

    monkeypatch.setattr(dataclasses, "dataclass", theirs)

    @record.dataclass(frozen=True, slots=True)
    class Listed:
        a: list[int] = field(default_factory=list[int])

    assert Listed().a == []
    assert Listed([1]).a == [1]
    with pytest.raises(AssertionError, match="left to"):

        @record.dataclass
        class Named:
            a: int = field(default=1, kw_only=True)
