"""Sorting rows, and their greatest elements, against torch."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_random
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "sort"
SHAPES = ((1, 1 << 20), (1000, 1000), (20000, 50))
SMALL = (3, 1031)
KEPT = (5, 100)


def rows() -> Iterator[Row]:
    """Whole rows of each shape, then their first elements."""
    for shape in SHAPES:
        yield Row(GROUP, "x".join(map(str, shape)), partial(_make, shape, None))
        for k in KEPT:
            if k < shape[1]:
                label = f"topk {k} of {'x'.join(map(str, shape))}"
                yield Row(GROUP, label, partial(_make, shape, k))


def _make(shape: tuple[int, int], k: int | None, small: bool) -> Case:
    x = make_random(SMALL if small else shape)
    name, parameters = ("sort", ()) if k is None else ("topk", (k,))
    contenders: list[Contender] = []
    ours, torch = peers.find_prebuilt(name), peers.find("torch")
    if ours is not None:
        contenders.append(_first(OURS, partial(ours, x, *parameters), x))
    if torch is not None:
        call = partial(getattr(torch, name), peers.as_torch(x), *parameters)
        contenders.append(_first("torch", call, x))
    claims = [Claim("torch", "cubepy returned", ("torch returned",), None)]
    return Case(contenders, claims, lambda: _reference(x, k))


def _first(who: str, call: Any, x: np.ndarray) -> Contender:
    """Judged by the values alone: equal elements may be in any order."""
    return Contender(who, call, "returned", x.nbytes, result=lambda: call()[0])


def _reference(x: np.ndarray, k: int | None) -> np.ndarray:
    return np.sort(x, 1) if k is None else -np.sort(-x, 1)[:, :k]
