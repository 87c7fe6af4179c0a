"""Running sums of a matrix along its axes against torch, and against the best copy of the bytes."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "cumsum"
SHAPE, SMALL = (4096, 4096), (300, 1031)
FLOOR = 2.0


def rows() -> Iterator[Row]:
    """One row for each axis."""
    for axis, label in ((1, "last axis"), (0, "first axis")):
        yield Row(GROUP, f"{'x'.join(map(str, SHAPE))} {label}", partial(_make, axis))


def _make(axis: int, small: bool) -> Case:
    x = make_random(SMALL if small else SHAPE)
    out = make_empty(x.shape)
    nbytes = x.nbytes + out.nbytes
    contenders: list[Contender] = []
    ours, torch = peers.find_prebuilt("cumsum"), peers.find("torch")
    if ours is not None:
        call = partial(ours, x, axis, out=out)
        contenders.append(Contender(OURS, call, "out", nbytes, result=lambda: out))
    if torch is not None:
        call = partial(torch.cumsum, peers.as_torch(x), axis, out=peers.as_torch(out))
        contenders.append(Contender("torch", call, "out", nbytes, result=lambda: out))
    claims = [
        Claim("torch", "cubepy out", ("torch out",), FLOOR),
        Claim("roof", "cubepy out", COPIES, is_rate=True),
    ]
    expected = partial(np.cumsum, to_f64(x), axis)
    everyone = only_present([*contenders, *find_copies(nbytes)])
    return Case(everyone, claims, expected, rtol=1e-4, atol=1e-3)
