"""Frozen dataclasses as comptime arguments, such as configurations of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
from cubepy.jit.tables import native_executor

pytestmark = pytest.mark.skipif(native_executor() is None, reason="no native launches here")


@dataclass(frozen=True)
class Tile:
    n: int
    inner: Any = None
    added = 1

    @property
    def twice(self) -> int:
        return 2 * self.n


class Grown(Tile):
    """Its attributes but the fields may be assigned to."""


@cp.cube
def by_tile(x, out, t: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * t.twice + t.added


@cp.cube
def by_inner(x, out, t: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * t.inner.n


def of_tile(kernel: Any, t: Any, times: int = 4) -> float:
    x, out = np.ones(3, np.float32), np.full(3, np.nan, np.float32)
    for _ in range(times):
        kernel.over(out)(x, out, t)
    assert (out == out[0]).all()
    return float(out[0])


def test_they_are_launched_natively(monkeypatch: pytest.MonkeyPatch):
    tiles = [Tile(3), Tile(4), Tile(4, Tile(5))]
    for t in tiles:
        of_tile(by_tile, t)
    of_tile(by_inner, tiles[2])
    with monkeypatch.context() as m:
        m.setattr(Launcher, "_prepared", None)  # what comes to Python
        assert [of_tile(by_tile, t) for t in tiles] == [7, 9, 9]
        assert of_tile(by_inner, tiles[2]) == 5
    for n in range(200):  # an object may lie where another was
        assert of_tile(by_tile, Tile(n % 5), 1) == n % 5 * 2 + 1


def test_attributes_of_their_class_change(monkeypatch: pytest.MonkeyPatch):
    t = Tile(3)
    assert of_tile(by_tile, t) == 7
    monkeypatch.setattr(Tile, "added", 2)
    assert of_tile(by_tile, t) == 8
    monkeypatch.setattr(Tile, "twice", property(lambda t: 3 * t.n))
    assert of_tile(by_tile, t) == 11


def test_others_are_read_at_each_launch():
    grown: Any = Grown(3)
    for added in (5, 6):
        grown.added = added
        assert of_tile(by_tile, grown) == 6 + added
    outer = Tile(1, Grown(2))
    assert of_tile(by_inner, outer) == 2
    holder = Tile(1, type("Holder", (), {"n": 7})())
    for n in (7, 8, 9):
        holder.inner.n = n
        assert of_tile(by_inner, holder) == n
