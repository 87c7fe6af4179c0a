"""What a call costs when there is next to nothing to do: 16 elements, `out` given."""

from collections.abc import Iterator

import numpy as np

from bench import kernels, peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "launch"
ELEMENTS = 16


def rows() -> Iterator[Row]:
    """One row: everybody adds 16 elements."""
    yield Row(GROUP, f"add, {ELEMENTS} elements", _make)


def _make(small: bool) -> Case:
    x, y = make_random((ELEMENTS,), 0), make_random((ELEMENTS,), 1)
    out = make_empty((ELEMENTS,))
    calls = [*_ours(x, y, out), *_peers(x, y, out)]
    contenders = [Contender(who, call, way, result=lambda: out) for who, call, way in calls]
    contenders.append(Contender("python", lambda: None, "lambda: None", is_judged=False))
    against = tuple(c.name for c in contenders if c.who not in (OURS, "python"))
    claims = [Claim(name, "cubepy launcher", (name,)) for name in against]
    return Case(contenders, claims, lambda: to_f64(x) + to_f64(y))


def _ours(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> Iterator[tuple]:
    launcher = kernels.add.over(out)
    bound = launcher.bind(x, y, out)
    yield OURS, lambda: launcher(x, y, out), "launcher"
    yield OURS, lambda: kernels.add.over(out)(x, y, out), "add.over(out)(x, y, out)"
    yield OURS, bound, "bound"


def _peers(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> Iterator[tuple]:
    yield "numpy", lambda: np.add(x, y, out=out), "add out="
    if peers.find("numba"):
        from bench import numba_kernels

        yield "numba", lambda: numba_kernels.add(x, y, out), "njit"
        yield "numba", lambda: numba_kernels.add_parallel(x, y, out), "njit(parallel=True)"
    if torch := peers.find("torch"):
        a, b, c = (peers.as_torch(array) for array in (x, y, out))
        yield "torch", lambda: torch.add(a, b, out=c), "add out="
