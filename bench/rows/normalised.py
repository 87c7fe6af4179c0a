"""Softmax and layer norm over the rows of a matrix against torch and the best copy of the bytes."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

SHAPE, SMALL = (4096, 4096), (300, 1031)
SOFTMAX_FLOOR, LAYER_NORM_FLOOR = 1.2, 3.0
EPSILON = 1e-5


def rows() -> Iterator[Row]:
    """One row for each function."""
    size = "x".join(map(str, SHAPE))
    yield Row("softmax", f"{size} rows", _make_softmax)
    yield Row("layer norm", f"{size} rows", _make_layer_norm)


def _make_softmax(small: bool) -> Case:
    x = make_random(SMALL if small else SHAPE)
    out = make_empty(x.shape)
    contenders: list[Contender] = []
    ours, torch = peers.find_prebuilt("softmax"), peers.find("torch")
    if ours is not None:
        call = partial(ours, x, -1)
        contenders += [_given(OURS, partial(call, out=out), x, out), _returned(OURS, call, x)]
    if torch is not None:
        call = partial(torch.softmax, peers.as_torch(x), -1)
        filled = partial(call, out=peers.as_torch(out))
        contenders += [_given("torch", filled, x, out), _returned("torch", call, x)]
    claims = [
        Claim("out", "cubepy out", ("torch out",), SOFTMAX_FLOOR),
        Claim("returned", "cubepy returned", ("torch returned",)),
    ]
    return _make_case(contenders, claims, partial(_softmax, x), x)


def _make_layer_norm(small: bool) -> Case:
    x = make_random(SMALL if small else SHAPE)
    out = make_empty(x.shape)
    weight, bias = make_random(x.shape[1:], 1), make_random(x.shape[1:], 2)
    contenders: list[Contender] = []
    ours, torch = peers.find_prebuilt("layer_norm"), peers.find("torch")
    if ours is not None:
        call = partial(ours, x, x.shape[1:], weight, bias, EPSILON)
        contenders += [_given(OURS, partial(call, out=out), x, out), _returned(OURS, call, x)]
    if torch is not None:
        tensors = [peers.as_torch(array) for array in (weight, bias)]
        norm = torch.nn.functional.layer_norm
        call = partial(norm, peers.as_torch(x), x.shape[1:], *tensors, EPSILON)
        contenders.append(_returned("torch", call, x))
    claims = [
        Claim("returned", "cubepy returned", ("torch returned",), LAYER_NORM_FLOOR),
        Claim("out", "cubepy out", ("torch returned",)),
    ]
    return _make_case(contenders, claims, partial(_layer_norm, x, weight, bias), x)


def _given(who: str, call: partial, x: np.ndarray, out: np.ndarray) -> Contender:
    return Contender(who, call, "out", 2 * x.nbytes, result=lambda: out)


def _returned(who: str, call: partial, x: np.ndarray) -> Contender:
    return Contender(who, call, "returned", 2 * x.nbytes)


def _make_case(
    contenders: list[Contender], claims: list[Claim], expected: partial, x: np.ndarray
) -> Case:
    everyone = only_present([*contenders, *find_copies(2 * x.nbytes)])
    roof = Claim("roof", "cubepy out", COPIES, is_rate=True)
    return Case(everyone, [*claims, roof], expected, rtol=1e-4, atol=1e-5)


def _softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(to_f64(x))
    return exponentials / exponentials.sum(1, keepdims=True)


def _layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    wide = to_f64(x)
    centred = wide - wide.mean(1, keepdims=True)
    return centred / np.sqrt(wide.var(1, keepdims=True) + EPSILON) * weight + bias
