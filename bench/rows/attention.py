"""Attention and its gradients against torch's `scaled_dot_product_attention`."""

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
    """`heads` of `queries` by `keys`, of `size` elements; `shared`: heads that share keys."""

    heads: int
    queries: int
    keys: int
    size: int
    is_causal: bool
    floor: float
    shared: int = 1

    def __str__(self) -> str:
        kind = " causal" if self.is_causal else ""
        kind += f", {self.shared} share keys" if self.shared > 1 else ""
        return f"{self.heads} of {self.queries}x{self.keys}x{self.size}{kind}"

    def less(self) -> "Problem":
        """A problem of the same kind that is checked quickly."""
        heads = 2 * self.shared
        return replace(self, heads=heads, queries=min(self.queries, 30), keys=30, size=16)


PROBLEMS = (
    Problem(8, 1024, 1024, 64, False, 1.0),
    Problem(8, 1024, 1024, 64, True, 1.0),
    Problem(8, 1024, 1024, 128, False, 1.0),
    Problem(12, 128, 128, 64, False, 0.8),
    Problem(32, 1, 4096, 128, False, 1.2),
    Problem(32, 1, 4096, 128, False, 1.2, shared=4),
)


NARROW = PROBLEMS[:3]
"""Of bf16, and of gradients."""


def rows() -> Iterator[Row]:
    """One row for each problem: heads of BERT and of a Llama layer."""
    for problem in PROBLEMS:
        yield Row(GROUP, str(problem), partial(_make, problem))
    for problem in () if "torch" in peers.absent() else NARROW:
        yield Row(GROUP, f"bf16 {problem}", partial(_make_narrow, problem))
        yield Row(GROUP, f"gradients {problem}", partial(_make_gradients, problem))


def _make(problem: Problem, small: bool) -> Case:
    p = problem.less() if small else problem
    q, k, v = _operands(p)
    out = make_empty(q.shape)
    contenders = only_present([_ours(p, q, k, v, out), _torch(p, q, k, v)])
    claims = [Claim("best", f"{OURS} out", ("torch returned",), p.floor)]
    return Case(contenders, claims, partial(_expected, p, q, k, v), rtol=1e-4, atol=1e-5)


def _make_narrow(problem: Problem, small: bool) -> Case:
    """Torch's arrays on both sides: NumPy has no bf16."""
    p = problem.less() if small else problem
    torch, attention = peers.find("torch"), peers.find_prebuilt("attention")
    assert torch is not None and attention is not None
    q, k, v = (torch.from_numpy(x).bfloat16() for x in _operands(p))
    out, attend = torch.empty_like(q), torch.nn.functional.scaled_dot_product_attention
    nbytes = sum(x.nbytes for x in (q, k, v, out))
    ours = partial(attention, q, k, v, causal=p.is_causal, out=out)
    theirs = partial(attend, q[None], k[None], v[None], is_causal=p.is_causal)
    contenders = [
        Contender(OURS, ours, "out", nbytes, result=lambda: out.double().numpy()),
        Contender("torch", lambda: theirs()[0].double().numpy() if small else theirs(), "returned"),
    ]
    claims = [Claim("best", f"{OURS} out", ("torch returned",), p.floor)]
    expected = partial(_expected, p, *(x.double().numpy() for x in (q, k, v)))
    return Case(contenders, claims, expected, rtol=2.0**-7, atol=2.0**-7)


def _make_gradients(problem: Problem, small: bool) -> Case:
    """Both get what the forward pass left: torch its graph, CubePy results and logarithms."""
    p = problem.less() if small else problem
    torch, gradients = peers.find("torch"), peers.find_prebuilt("attention_grad")
    attention = peers.find_prebuilt("attention")
    assert torch is not None and gradients is not None and attention is not None
    held = [torch.from_numpy(x).requires_grad_() for x in _operands(p)]
    q, k, v = (x.detach() for x in held)
    attend = torch.nn.functional.scaled_dot_product_attention
    made = attend(*(x[None] for x in held), is_causal=p.is_causal)[0]
    grad = torch.from_numpy(make_random(tuple(made.shape), seed=3))
    result, logs = attention(q, k, v, causal=p.is_causal, return_lse=True)
    outs = tuple(map(torch.empty_like, (q, k, v)))
    ours = partial(gradients, q, k, v, result, logs, grad, causal=p.is_causal, out=outs)
    theirs = partial(torch.autograd.grad, made, held, grad, retain_graph=True)
    contenders = [
        Contender(OURS, ours, "out", result=lambda: torch.stack(outs).numpy()),
        Contender(
            "torch", lambda: torch.stack(theirs()).numpy() if small else theirs(), "returned"
        ),
    ]
    claims = [Claim("best", f"{OURS} out", ("torch returned",), p.floor)]
    arrays = [x.double().numpy() for x in (q, k, v, grad)]
    return Case(contenders, claims, partial(_gradients, p, *arrays), rtol=1e-3, atol=1e-4)


def _operands(p: Problem) -> list[np.ndarray]:
    few = p.heads // p.shared
    extents = (p.heads, p.queries, p.size), (few, p.keys, p.size), (few, p.keys, p.size)
    return [make_random(shape, seed=seed) for seed, shape in enumerate(extents)]


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
    whole = (peers.as_torch(x)[None] for x in arrays)  # its fast form takes four axes
    call = partial(attend, *whole, is_causal=p.is_causal, enable_gqa=p.shared > 1)
    return Contender("torch", lambda: call()[0], "returned", _bytes(*arrays, arrays[0]))


def _bytes(*arrays: np.ndarray) -> int:
    return sum(x.nbytes for x in arrays)


def _expected(p: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    k, v = (np.repeat(x, p.shared, 0) for x in (k, v))
    return _weights(p, q, k) @ to_f64(v)


def _gradients(
    p: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray
) -> np.ndarray:
    weights = _weights(p, q, k)
    changes = grad @ v.swapaxes(-1, -2)
    delta = (weights * changes).sum(-1, keepdims=True)
    slopes = weights * (changes - delta) / np.sqrt(p.size)
    turned = slopes.swapaxes(-1, -2), weights.swapaxes(-1, -2)
    return np.stack([slopes @ k, turned[0] @ q, turned[1] @ grad])


def _weights(p: Problem, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    scores = to_f64(q) @ to_f64(k).swapaxes(-1, -2) / np.sqrt(p.size)
    if p.is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)
