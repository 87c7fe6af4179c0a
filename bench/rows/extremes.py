"""Maxima of a matrix and where they are, over all and each axis, against torch and NumPy."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random
from bench.rows.bandwidth import READ, make_roof_read
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

SHAPE, SMALL = (4096, 4096), (300, 1031)
AXES = {"all": None, "last axis": 1, "first axis": 0}
FLOORS = {"max": 1.0, "argmax": 5.0}
PEERS = {"max": ("torch", "numpy"), "argmax": ("torch",)}
"""Whom the floors are measured against; NumPy finds places faster than torch."""
TORCH = {"max": "amax", "argmax": "argmax"}


def rows() -> Iterator[Row]:
    """One row for each function and axis."""
    for name in FLOORS:
        for label, axis in AXES.items():
            size = "x".join(map(str, SHAPE))
            yield Row(name, f"{size} {label}", partial(_make, name, axis))


def _make(name: str, axis: int | None, small: bool) -> Case:
    x = make_random(SMALL if small else SHAPE)
    shape = () if axis is None else (x.shape[1 - axis],)
    out = make_empty(shape) if name == "max" else np.zeros(shape, np.int64)
    contenders = [
        *_ours(name, x, axis, out),
        *_torch(name, x, axis, out),
        *_numpy(name, x, axis, out),
        make_roof_read(x),
    ]
    floor, whose = FLOORS[name], PEERS[name]
    claims = [
        Claim("out", "cubepy out", tuple(f"{who} out" for who in whose), floor),
        Claim("returned", "cubepy returned", tuple(f"{who} returned" for who in whose), floor),
        Claim("roof", "cubepy out", READ, is_rate=True),
    ]
    expected = partial(getattr(np, name), x, axis)
    return Case(only_present(contenders), claims, expected, rtol=1e-5)


def _ours(name: str, x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    function = peers.find_prebuilt(name)
    if function is not None:
        yield from _both_ways(OURS, partial(function, x, axis=axis), out, out, x)


def _torch(name: str, x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    torch = peers.find("torch")
    if torch is None:
        return
    axes = (0, 1) if axis is None and name == "max" else axis
    call = partial(getattr(torch, TORCH[name]), peers.as_torch(x), axes)
    yield from _both_ways("torch", call, peers.as_torch(out), out, x)


def _numpy(name: str, x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    yield from _both_ways("numpy", partial(getattr(np, name), x, axis), out, out, x)


def _both_ways(
    who: str, call: Any, given: Any, out: np.ndarray, x: np.ndarray
) -> Iterator[Contender]:
    nbytes = x.nbytes + out.nbytes
    yield Contender(who, partial(call, out=given), "out", nbytes, result=lambda: out)
    yield Contender(who, call, "returned", nbytes)
