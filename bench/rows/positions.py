"""Units that find their place in arrays of several axes, beside numba's loops over the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench import positions as kernels
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "positions"
Make = Callable[[int], tuple[tuple[Any, ...], Any, Callable[[], Any]]]
"""Arrays by the number of elements, the last of which is the output; what the kernel goes over; and
the result."""


def rows() -> Iterator[Row]:
    """Each kernel on small arrays, which are in caches, and the times of a numba loop as floors."""
    for label, kernel, make, floor in (
        ("planes of 56x56", "scale_planes", partial(_planes, 56), 15.0),
        ("planes of 14x14", "scale_planes", partial(_planes, 14), 6.0),
        ("rows of 24", "add_bias", partial(_bias, 24), 6.0),
        ("rotary 8x128", "rotate", partial(_rotary, 8, 64), 15.0),
        ("gray u8", "gray", _image, 3.0),
        ("points", "attract", _points, 3.0),
    ):
        yield Row(GROUP, label, partial(_make, kernel, make, floor))


def _make(name: str, make: Make, floor: float, small: bool) -> Case:
    args, over, expected = make(1 << 12 if small else 1 << 18)
    out = args[-1]
    call = getattr(kernels, name).over(over).bind(*args)
    contenders = [
        Contender(OURS, call, "out", result=lambda: to_f64(out)),
        _numba(name, args),
    ]
    claims = [Claim("speed", f"{OURS} out", ("numba loop",), floor)]
    return Case(only_present(contenders), claims, expected, rtol=1e-5, atol=1e-6)


def _numba(name: str, args: tuple[Any, ...]) -> Contender | None:
    if not peers.find("numba"):
        return None
    from bench import numba_kernels

    call = partial(getattr(numba_kernels, name), *args)
    return Contender("numba", call, "loop", result=lambda: to_f64(args[-1]))


def _planes(side: int, elements: int) -> Any:
    shape = (max(elements // side**2, 1), side, side)
    x, a, out = make_random(shape, 1), make_random(shape[:1], 2), make_empty(shape)
    return (x, a, out), out.size, lambda: to_f64(x) * to_f64(a)[:, None, None]


def _bias(columns: int, elements: int) -> Any:
    shape = (elements // columns, columns)
    x, b, out = make_random(shape, 1), make_random(shape[1:], 2), make_empty(shape)
    return (x, b, out), out.size, lambda: np.exp(to_f64(x)) + to_f64(b)


def _rotary(heads: int, half: int, elements: int) -> Any:
    shape = (elements // (heads * half * 2), heads, half * 2)
    x, out = make_random(shape, 1), make_empty(shape)
    c, s = make_random((shape[0], half), 2), make_random((shape[0], half), 3)

    def rotated() -> Any:
        a, b = to_f64(x)[..., :half], to_f64(x)[..., half:]
        cos, sin = to_f64(c)[:, None], to_f64(s)[:, None]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    return (x, c, s, out), out.size // 2, rotated


def _image(elements: int) -> Any:
    side = int(elements**0.5)
    x = (np.abs(make_random((side, side, 3), 1)) * 100).astype(np.uint8)
    out = np.zeros((side, side), np.uint8)
    return (x, out), out, lambda: to_f64((x.astype(np.uint32) @ [77, 150, 29]) >> 8)


def _points(elements: int) -> Any:
    p, out = make_random((elements, 3), 1), make_empty((elements, 3))

    def pulled() -> Any:
        squares = (to_f64(p) ** 2).sum(1, keepdims=True) + 0.001
        return -to_f64(p) * squares**-1.5

    return (p, out), elements, pulled
