"""Sums of a matrix over all, the last and the first axis, against the best of torch and NumPy."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.rows.bandwidth import READ, make_roof_read
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "sum"
SHAPE, SMALL = (4096, 4096), (300, 1031)
FLOORS = {"all": (None, 0.95), "last axis": (1, 0.95), "first axis": (0, 1.4)}


def rows() -> Iterator[Row]:
    """One row for each axis."""
    for label, (axis, floor) in FLOORS.items():
        yield Row(GROUP, f"{'x'.join(map(str, SHAPE))} {label}", partial(_make, axis, floor))


def _make(axis: int | None, floor: float, small: bool) -> Case:
    x = make_random(SMALL if small else SHAPE)
    out = make_empty(() if axis is None else (x.shape[1 - axis],))
    contenders = [
        *_ours(x, axis, out),
        *_torch(x, axis, out),
        *_numpy(x, axis, out),
        _numba(x, axis, out),
        make_roof_read(x),
    ]
    claims = [
        Claim("out", "cubepy out", ("torch out", "numpy out"), floor),
        Claim("returned", "cubepy returned", ("torch returned", "numpy returned"), floor),
        Claim("roof", "cubepy out", READ, is_rate=True),
    ]
    expected = partial(to_f64(x).sum, axis)
    return Case(only_present(contenders), claims, expected, rtol=1e-4, atol=x.shape[0] * 1e-5)


def _ours(x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    total = peers.find_prebuilt("sum")
    if total is not None:
        yield _given(OURS, partial(total, x, axis=axis, out=out), x, out)
        yield Contender(OURS, partial(total, x, axis=axis), "returned", x.nbytes)


def _torch(x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    torch = peers.find("torch")
    if torch is None:
        return
    tensor, target = peers.as_torch(x), peers.as_torch(out)
    axes = (0, 1) if axis is None else axis
    yield _given("torch", partial(torch.sum, tensor, axes, out=target), x, out)
    yield Contender("torch", partial(torch.sum, tensor, axes), "returned", x.nbytes)


def _numpy(x: np.ndarray, axis: int | None, out: np.ndarray) -> Iterator[Contender]:
    yield _given("numpy", partial(np.sum, x, axis, out=out), x, out)
    yield Contender("numpy", partial(np.sum, x, axis), "returned", x.nbytes)


def _numba(x: np.ndarray, axis: int | None, out: np.ndarray) -> Contender | None:
    if axis == 0 or not peers.find("numba"):
        return None
    from bench import numba_kernels

    call: Any = numba_kernels.sum_last if axis else numba_kernels.sum_all
    return _given("numba", partial(call, x, out.reshape(-1)), x, out)


def _given(who: str, call: Callable[[], Any], x: np.ndarray, out: np.ndarray) -> Contender:
    return Contender(who, call, "out", x.nbytes + out.nbytes, result=lambda: out)
