"""Average and adaptive pooling of images against torch, and against the best copy of the bytes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "avg_pool2d"
SHAPE, SMALL = (2, 32, 512, 512), (2, 2, 66, 512)
OF_COPY = 0.9


@dataclass(frozen=True, slots=True)
class Work:
    """A function, its parameters, and how many times torch's speed we want on NCHW."""

    function: str
    parameters: tuple[Any, ...]
    floor: float | None
    is_channels_last: bool = False

    def __str__(self) -> str:
        parameters = "/".join(map(str, self.parameters))
        order = " channels last" if self.is_channels_last else ""
        return f"{self.function} {'x'.join(map(str, SHAPE))} {parameters}{order}"


WORK = (
    Work("avg_pool2d", (3, 1, 1), 10),
    Work("avg_pool2d", (3, 2, 1), None),
    Work("avg_pool2d", (2, 2, 0), None),
    Work("avg_pool2d", (3, 1, 1), None, True),
    Work("adaptive_avg_pool2d", (7,), None),
    Work("adaptive_avg_pool2d", (1,), None),
)


def rows() -> Iterator[Row]:
    """One row for each kind of work."""
    for work in WORK:
        yield Row(GROUP, str(work), partial(_make, work))


def _make(work: Work, small: bool) -> Case:
    x = _stored(make_random(SMALL if small else SHAPE), work.is_channels_last)
    expected = _reference(work, x)
    out = _stored(make_empty(expected.shape), work.is_channels_last)
    nbytes = x.nbytes + out.nbytes
    ours = peers.find_prebuilt(work.function)
    contenders: list[Contender | None] = []
    if ours is not None:
        contenders.append(_given(OURS, partial(ours, x, *work.parameters, out=out), nbytes, out))
    torch = peers.find("torch")
    if torch is not None:
        theirs = getattr(torch.nn.functional, work.function)
        call = partial(theirs, peers.as_torch(x), *work.parameters)
        contenders.append(Contender("torch", call, "returned", nbytes))
    claims = [
        Claim("torch", "cubepy out", ("torch returned",), work.floor),
        Claim("roof", "cubepy out", COPIES, is_rate=True),
    ]
    return Case(
        only_present([*contenders, *find_copies(nbytes)]), claims, lambda: expected, 1e-4, 1e-5
    )


def _stored(x: np.ndarray, is_channels_last: bool) -> np.ndarray:
    """The same elements, with the channels last in memory."""
    if not is_channels_last:
        return x
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def _given(who: str, call: Callable[[], Any], nbytes: int, out: np.ndarray) -> Contender:
    return Contender(who, call, "out", nbytes, result=lambda: out)


def _reference(work: Work, x: np.ndarray) -> np.ndarray:
    """Means in f64."""
    if work.function.startswith("adaptive"):
        (m,) = work.parameters
        bands = [(i * n // m, -(-(i + 1) * n // m)) for n in x.shape[2:] for i in range(m)]
        parts = [
            [to_f64(x[:, :, a:b, c:d]).mean((2, 3)) for c, d in bands[m:]] for a, b in bands[:m]
        ]
        return np.moveaxis(np.array(parts), (0, 1), (2, 3))
    kernel, stride, pad = work.parameters
    padded = np.pad(to_f64(x), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    sums = sum(
        padded[:, :, i : padded.shape[2] - kernel + 1 + i, j : padded.shape[3] - kernel + 1 + j]
        for i in range(kernel)
        for j in range(kernel)
    )
    return np.asarray(sums)[:, :, ::stride, ::stride] / kernel**2
