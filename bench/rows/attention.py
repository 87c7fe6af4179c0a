"""Attention against torch's `scaled_dot_product_attention`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "attention"


@dataclass(frozen=True, slots=True)
class Problem:
    """`heads` of `queries` by `keys`, of `size` elements."""

    heads: int
    queries: int
    keys: int
    size: int
    is_causal: bool
    floor: float

    def __str__(self) -> str:
        kind = " causal" if self.is_causal else ""
        return f"{self.heads} of {self.queries}x{self.keys}x{self.size}{kind}"


PROBLEMS = (
    Problem(8, 1024, 1024, 64, False, 1.0),
    Problem(8, 1024, 1024, 64, True, 1.0),
    Problem(8, 1024, 1024, 128, False, 1.0),
    Problem(12, 128, 128, 64, False, 0.8),
    Problem(32, 1, 4096, 128, False, 0.7),
)


def rows() -> Iterator[Row]:
    """One row for each problem: heads of BERT and of a Llama layer."""
    for problem in PROBLEMS:
        yield Row(GROUP, str(problem), partial(_make, problem))


def _make(problem: Problem, small: bool) -> Case:
    p = problem
    if small:
        p = replace(p, heads=2, queries=min(p.queries, 30), keys=30, size=16)
    q = make_random((p.heads, p.queries, p.size))
    k, v = (make_random((p.heads, p.keys, p.size), seed=seed) for seed in (1, 2))
    out = make_empty(q.shape)
    contenders = only_present([_ours(p, q, k, v, out), _torch(p, q, k, v)])
    claims = [Claim("best", f"{OURS} out", ("torch returned",), p.floor)]
    return Case(contenders, claims, partial(_expected, p, q, k, v), rtol=1e-4, atol=1e-5)


def _ours(p: Problem, q: Any, k: Any, v: Any, out: np.ndarray) -> Contender | None:
    attention = peers.find_prebuilt("attention")
    if attention is None:
        return None
    call = partial(attention, q, k, v, causal=p.is_causal, out=out)
    return Contender(OURS, call, "out", _bytes(q, k, v, out), result=lambda: out)


def _torch(p: Problem, *arrays: np.ndarray) -> Contender | None:
    torch = peers.find("torch")
    if torch is None:
        return None
    attend = torch.nn.functional.scaled_dot_product_attention
    call = partial(attend, *map(peers.as_torch, arrays), is_causal=p.is_causal)
    return Contender("torch", call, "returned", _bytes(*arrays, arrays[0]))


def _bytes(*arrays: np.ndarray) -> int:
    return sum(x.nbytes for x in arrays)


def _expected(p: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = to_f64(q) @ to_f64(k).swapaxes(-1, -2) / np.sqrt(p.size)
    if p.is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ to_f64(v)
