"""The line on a terminal: what it says, how often, and that nothing is left of it."""

from __future__ import annotations

import io

import pytest

from cubepy.autotune import progress
from cubepy.autotune.progress import Progress
from cubepy.autotune.trials import OK, Trials


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def trials() -> Trials:
    found = Trials(["a", "b", "c"])
    for k, seconds in ((0, 2e-3), (1, 1e-3)):
        found.apply({"do": "checked", "k": k, "status": OK})
        found.apply({"do": "first", "k": k, "s": seconds})
    return found


def test_a_bar_says_how_far_a_search_is_and_is_removed(clock: Clock):
    out = Terminal()
    shown = Progress("double", 2.0, out)
    clock.now = 1.0
    shown.show(trials())
    text = out.getvalue()
    assert text.startswith("\rtuning double [############............] 2 of 3 tried")
    assert "best 2.00 x the default" in text
    shown.end()
    assert out.getvalue().endswith("\r") and out.getvalue().split("\r")[-2].strip() == ""


def test_it_is_drawn_ten_times_a_second_at_most_and_not_for_short_searches(clock: Clock):
    out = Terminal()
    shown = Progress("double", 2.0, out)
    for step in range(1000):
        clock.now = step * 2e-3
        shown.show(trials())
    assert out.getvalue().count("tuning") == pytest.approx((2.0 - 0.3) * 10, abs=2)
    short = Terminal()
    clock.now = 0.0
    shown = Progress("double", 2.0, short)
    clock.now = 0.2
    shown.show(trials())
    shown.end()
    assert short.getvalue() == ""


def test_nothing_is_written_where_there_is_no_terminal(clock: Clock):
    out = io.StringIO()
    shown = Progress("double", 2.0, out)
    clock.now = 1.0
    shown.show(trials())
    shown.end()
    assert out.getvalue() == ""
