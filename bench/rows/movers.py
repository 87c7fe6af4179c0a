"""Data movers, random numbers and quantisation against torch and NumPy, at shapes of models."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

TRANSPOSED = (
    ((4096, 4096), (1, 0)),
    ((8, 1024, 16, 64), (0, 2, 1, 3)),  # heads of attention
    ((16, 64, 56, 56), (0, 2, 3, 1)),  # a layer of ResNet-50, channels first to last
)
TABLE, TOKENS = (32000, 1024), 4096
SQUARE = (4096, 4096)
DRAWN = 1 << 24


def rows() -> Iterator[Row]:
    """One row for each function and shape."""
    for shape, axes in TRANSPOSED:
        label = f"{'x'.join(map(str, shape))} to {' '.join(map(str, axes))}"
        yield Row("transpose", label, partial(_make_transpose, shape, axes))
    yield Row("where", "x".join(map(str, SQUARE)), _make_where)
    table = f"{TOKENS} of {'x'.join(map(str, TABLE))}"
    yield Row("gather", table, _make_gather)
    yield Row("scatter", f"add {table}", _make_scatter)
    for name in ("uniform", "normal"):
        yield Row("random", f"{name} {DRAWN}", partial(_make_random, name))
    yield Row("quantize", f"{'x'.join(map(str, SQUARE))} int8 by rows", _make_quantize)


def _case(
    ours: Callable[[], Any] | None,
    others: dict[str, Callable[[], Any]],
    out: np.ndarray,
    nbytes: int,
    reference: Callable[[], Any] | None = None,
) -> Case:
    """A case of calls that fill `out`, or arrays of their own; a copy of as many bytes is the
    roof."""
    judged = reference is not None
    contenders = [
        Contender(who, call, "out", nbytes, (lambda: out) if who == OURS else None, None, judged)
        for who, call in {OURS: ours, **others}.items()
        if call is not None
    ]
    claims = [
        Claim("peers", "cubepy out", tuple(f"{who} out" for who in others)),
        Claim("roof", "cubepy out", COPIES, is_rate=True),
    ]
    return Case(only_present([*contenders, *find_copies(nbytes)]), claims, reference, 1e-5, 1e-5)


def _make_transpose(shape: tuple[int, ...], axes: tuple[int, ...], small: bool) -> Case:
    x = make_random(tuple(min(n, 70) for n in shape) if small else shape)
    out, theirs = (make_empty(tuple(x.shape[k] for k in axes)) for _ in range(2))
    others: dict[str, Any] = {"numpy": lambda: _filled(theirs, np.copyto, x.transpose(axes))}
    if peers.find("torch"):
        source, target = peers.as_torch(x).permute(axes), peers.as_torch(theirs)
        others["torch"] = partial(target.copy_, source)
    ours = partial(_prebuilt("transpose"), x, axes, out=out)
    return _case(ours, others, out, 2 * x.nbytes, lambda: x.transpose(axes))


def _filled(out: np.ndarray, call: Callable[..., Any], *args: Any) -> np.ndarray:
    call(out, *args)
    return out


def _make_where(small: bool) -> Case:
    shape = (70, 130) if small else SQUARE
    a, b, out, theirs = make_random(shape, 1), make_random(shape, 2), *_empty(shape)
    c = make_random(shape, 3) > 0
    others: dict[str, Any] = {"numpy": lambda: np.where(c, a, b)}
    torch = peers.find("torch")
    if torch:
        tensors = [peers.as_torch(v) for v in (c, a, b)]
        others["torch"] = partial(torch.where, *tensors, out=peers.as_torch(theirs))
    ours = partial(_prebuilt("where"), c, a, b, out=out)
    return _case(ours, others, out, 3 * a.nbytes + c.nbytes, lambda: np.where(c, a, b))


def _empty(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return make_empty(shape), make_empty(shape)


def _indices(small: bool) -> tuple[tuple[int, int], np.ndarray]:
    """The shape of a table, and the rows of it that tokens name."""
    shape, count = ((50, 70), 30) if small else (TABLE, TOKENS)
    return shape, np.random.default_rng(4).integers(0, shape[0], count)


def _make_gather(small: bool) -> Case:
    shape, index = _indices(small)
    x, (out, theirs) = make_random(shape), _empty((index.size, shape[1]))
    others: dict[str, Any] = {"numpy": lambda: np.take(x, index, 0, out=theirs, mode="clip")}
    torch = peers.find("torch")
    if torch:
        table, rows = peers.as_torch(x), peers.as_torch(index)
        others["torch"] = partial(torch.index_select, table, 0, rows, out=peers.as_torch(theirs))
    ours = partial(_prebuilt("gather"), x, index, out=out)
    return _case(ours, others, out, 2 * out.nbytes, lambda: x[index])


def _make_scatter(small: bool) -> Case:
    shape, index = _indices(small)
    values, (out, theirs) = make_random((index.size, shape[1])), _empty(shape)
    others: dict[str, Any] = {}
    if peers.find("torch"):
        target, rows = peers.as_torch(theirs), peers.as_torch(index)
        others["torch"] = partial(target.index_add_, 0, rows, peers.as_torch(values))
    ours = partial(_prebuilt("scatter"), out, index, values, update="add", out=out)
    return _case(ours, others, out, 3 * values.nbytes)


def _make_random(name: str, small: bool) -> Case:
    out, theirs = _empty((1000 if small else DRAWN,))
    numbers = np.random.default_rng(1)
    theirs_of = {"uniform": numbers.random, "normal": numbers.standard_normal}[name]
    others: dict[str, Any] = {"numpy": partial(theirs_of, out=theirs, dtype=np.float32)}
    if peers.find("torch"):
        others["torch"] = getattr(peers.as_torch(theirs), f"{name}_")
    ours = partial(getattr(_prebuilt("random"), name), out=out, seed=1)
    return _case(ours, others, out, out.nbytes)


def _make_quantize(small: bool) -> Case:
    x = make_random((70, 130) if small else SQUARE)
    scale, out = np.abs(x).max(1) / 127, np.zeros(x.shape, np.int8)

    def reference() -> np.ndarray:
        return np.clip(np.rint(x / scale[:, None]), -128, 127).astype(np.int8)

    ours = partial(_prebuilt("quantize"), x, scale, axis=0, out=out)
    return _case(ours, {"numpy": reference}, out, x.nbytes + out.nbytes, reference)


def _prebuilt(name: str) -> Any:
    found = peers.find_prebuilt(name)
    assert found is not None, name
    return found
