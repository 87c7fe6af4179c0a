"""Products of matrices against the best of torch (MKL) and NumPy (OpenBLAS)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "matmul"


@dataclass(frozen=True, slots=True)
class Problem:
    """`batch` products of m x k by k x n; `turned`: the right factor's columns are dense."""

    m: int
    k: int
    n: int
    floor: float
    batch: int = 1
    turned: bool = False

    def __str__(self) -> str:
        stack = f"{self.batch} of " if self.batch > 1 else ""
        return f"{stack}{self.m}x{self.k}x{self.n}{' turned' if self.turned else ''}"

    def less(self) -> "Problem":
        """A problem of the same kind that is checked quickly."""
        m, k, n = (min(v, most) for v, most in ((self.m, 50), (self.k, 70), (self.n, 90)))
        return Problem(m, k, n, self.floor, min(self.batch, 2), self.turned)


PROBLEMS = (
    Problem(64, 64, 64, 0.6),
    Problem(128, 128, 128, 0.9),
    Problem(200, 200, 200, 0.9),
    Problem(256, 256, 256, 0.9),
    Problem(512, 512, 512, 1.0),
    Problem(1024, 1024, 1024, 1.0),
    Problem(2048, 2048, 2048, 1.0),
    Problem(1024, 1024, 1024, 1.0, turned=True),
    Problem(1, 4096, 4096, 1.0),
    Problem(16, 4096, 4096, 1.3),
    Problem(16, 4096, 4096, 1.3, turned=True),
    Problem(8, 512, 64, 1.0),
    Problem(16, 4096, 16, 1.0),
    Problem(16, 4096, 64, 1.0),
    Problem(128, 512, 48, 1.0),
    Problem(128, 64, 128, 1.0, batch=32),
)


NARROW = {"bf16": 0.9, "i8": 0.9}
"""The floors of square products of types that matrix units take, by torch's."""
SIDE = 1024


def rows() -> Iterator[Row]:
    """One row for each problem."""
    for problem in PROBLEMS:
        yield Row(GROUP, str(problem), partial(_make, problem))
    narrow = {} if "torch" in peers.absent() else NARROW
    for dtype, floor in narrow.items():
        yield Row(GROUP, f"{dtype} {SIDE}x{SIDE}x{SIDE}", partial(_make_narrow, dtype, floor))


def _make(problem: Problem, small: bool) -> Case:
    p = problem.less() if small else problem
    stack = (p.batch,) if p.batch > 1 else ()
    a = make_random((*stack, p.m, p.k))
    b = make_random((*stack, p.n, p.k) if p.turned else (*stack, p.k, p.n), seed=1)
    b = b.swapaxes(-1, -2) if p.turned else b
    out = make_empty((*stack, p.m, p.n))
    contenders = [_ours(a, b, out), _torch(a, b, out), _numpy(a, b, out)]
    claims = [Claim("out", "cubepy out", ("torch out", "numpy out"), problem.floor)]
    expected = partial(np.matmul, to_f64(a), to_f64(b))
    return Case(only_present(contenders), claims, expected, rtol=1e-4, atol=p.k * 1e-5)


def _make_narrow(dtype: str, floor: float, small: bool) -> Case:
    """Torch's arrays on both sides: NumPy has no bf16, and adds short integers as they are."""
    torch = peers.find("torch")
    assert torch is not None
    side = 70 if small else SIDE
    a, b = (_narrow(torch, dtype, side, seed) for seed in (0, 1))
    found = torch.empty(side, side, dtype=torch.bfloat16 if dtype == "bf16" else torch.int32)
    product = torch.matmul if dtype == "bf16" else torch._int_mm
    theirs, nbytes = torch.empty_like(found), sum(x.nbytes for x in (a, b, found))
    matmul = peers.find_prebuilt("matmul")
    assert matmul is not None
    contenders = [
        Contender(who, partial(call, a, b, out=out), "out", nbytes, result=partial(_as_f64, out))
        for who, call, out in ((OURS, matmul, found), ("torch", product, theirs))
    ]
    claims = [Claim("out", "cubepy out", ("torch out",), floor)]
    expected = partial(np.matmul, _as_f64(a), _as_f64(b))
    return Case(contenders, claims, expected, rtol=2.0**-7, atol=side * 1e-5)


def _narrow(torch: Any, dtype: str, side: int, seed: int) -> Any:
    values = make_random((side, side), seed=seed)
    if dtype == "bf16":
        return torch.from_numpy(values).bfloat16()
    return torch.from_numpy(np.clip(values * 40, -128, 127).astype(np.int8))


def _as_f64(x: Any) -> np.ndarray:
    return x.double().numpy()


def _ours(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contender | None:
    matmul = peers.find_prebuilt("matmul")
    return None if matmul is None else _given(OURS, partial(matmul, a, b, out=out), a, b, out)


def _torch(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contender | None:
    torch = peers.find("torch")
    if torch is None:
        return None
    one, two, target = map(peers.as_torch, (a, b, out))
    return _given("torch", partial(torch.matmul, one, two, out=target), a, b, out)


def _numpy(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contender:
    return _given("numpy", partial(np.matmul, a, b, out=out), a, b, out)


def _given(who: str, call: Any, *arrays: np.ndarray) -> Contender:
    return Contender(who, call, "out", sum(x.nbytes for x in arrays), result=lambda: arrays[-1])
