"""A layer of Llama 3 8B for a prompt and for one token, and the choice of the next word."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import cubepy as cp
from bench.models.work import Arrays, Work

MODEL = "Llama 3 8B"
WIDTH, HEADS, KEYS, SIZE, INNER, WORDS = 4096, 32, 8, 128, 14336, 128256
CONTEXT = 8192
LINEAR = ((6144, WIDTH), (WIDTH, WIDTH), (2 * INNER, WIDTH), (WIDTH, INNER))
"""Rows and columns of the weights."""
kernels: Any = cp.kernels


def works(arrays: Arrays) -> Iterator[Work]:
    """Each makes its arrays when it is reached."""
    yield from products(arrays)
    yield from quantised(arrays)
    yield from heads(arrays)
    yield from rows(arrays)
    yield from next_word(arrays)


def products(arrays: Arrays) -> Iterator[Work]:
    """The linear layers."""
    of = arrays.sizes.of
    for tokens in (arrays.sizes.prompt, 1):
        for outs, ins in LINEAR:
            yield Work(
                MODEL,
                "product",
                f"{tokens}x{outs}x{ins}",
                lambda x, w: kernels.matmul(x, w.T),
                arrays.torch.nn.functional.linear,
                (arrays.normal(tokens, of(ins)), arrays.weight(of(outs), of(ins))),
                2 * tokens * of(outs) * of(ins),
            )


def quantised(arrays: Arrays) -> Iterator[Work]:
    """Weights of a byte with a scale for each row; torch widens them first."""
    outs, ins = (arrays.sizes.of(n) for n in (WIDTH, INNER))
    x, w = arrays.normal(1, ins), arrays.below(255, outs, ins).to(arrays.torch.int8)
    scale = (arrays.torch.rand(outs, 1, device=arrays.device) + 0.5) / 128

    def ours(x: Any, w: Any, s: Any) -> Any:
        return kernels.matmul(x, kernels.Quantised(w, s).T)

    def theirs(x: Any, w: Any, s: Any) -> Any:
        return arrays.torch.nn.functional.linear(x, w.to(x.dtype) * s.to(x.dtype))

    name = f"1x{WIDTH}x{INNER}, weights of int8"
    yield Work(MODEL, "quantisation", name, ours, theirs, (x, w, scale), 2 * outs * ins)


def heads(arrays: Arrays) -> Iterator[Work]:
    """32 heads share 8 of keys: a prompt, and one token behind a long one."""
    size, prompt = arrays.sizes.of(SIZE), arrays.sizes.prompt
    attend = arrays.torch.nn.functional.scaled_dot_product_attention
    for queries, keys in ((prompt, prompt), (1, arrays.sizes.of(CONTEXT))):
        q = arrays.normal(1, HEADS, queries, size)
        k, v = (arrays.normal(1, KEYS, keys, size) for _ in range(2))
        causal = queries > 1
        shown = f"{queries} tokens, causal" if causal else f"1 token behind {CONTEXT}"
        yield Work(
            MODEL,
            "attention",
            f"{HEADS} heads, {KEYS} of keys, {shown}",
            partial(kernels.attention, causal=causal),
            partial(attend, is_causal=causal, enable_gqa=True),
            (q, k, v),
            (2 if causal else 4) * HEADS * queries * keys * size,
        )


def gated(gate: Any, up: Any) -> Any:
    """silu(gate) * up"""
    return gate * cp.sigmoid(gate) * up


def rows(arrays: Arrays) -> Iterator[Work]:
    """Between the products."""
    functional, tokens = arrays.torch.nn.functional, arrays.sizes.prompt
    width, inner = arrays.sizes.of(WIDTH), arrays.sizes.of(INNER)
    yield Work(
        MODEL,
        "normalisation",
        f"rms norm, {tokens}x{WIDTH}",
        lambda x, w: kernels.rms_norm(x, width, w, 1e-5),
        lambda x, w: functional.rms_norm(x, (width,), w, 1e-5),
        (arrays.normal(tokens, width), arrays.normal(width)),
    )
    yield Work(
        MODEL,
        "element by element",
        f"silu(gate) * up, {tokens}x{INNER}",
        partial(kernels.map, gated),
        lambda gate, up: functional.silu(gate) * up,
        (arrays.normal(tokens, inner), arrays.normal(tokens, inner)),
    )


def next_word(arrays: Arrays) -> Iterator[Work]:
    """Sampling from the words' scores, in f32."""
    torch, rows, words = arrays.torch, arrays.sizes.rows, arrays.sizes.of(WORDS)
    x = arrays.normal(rows, words, dtype=torch.float32)
    allowed, low = arrays.below(2, rows, words).bool(), torch.tensor(-1e9, device=arrays.device)
    several: list[tuple[str, str, Any, Any, tuple[Any, ...]]] = [
        ("movement", "where", kernels.where, torch.where, (allowed, x, low)),
        (
            "reduction",
            "argmax",
            partial(kernels.argmax, axis=1),
            partial(torch.argmax, dim=1),
            (x,),
        ),
        ("reduction", "max", partial(kernels.max, axis=1), partial(torch.amax, dim=1), (x,)),
        ("reduction", "sum", partial(kernels.sum, axis=1), partial(torch.sum, dim=1), (x,)),
        ("reduction", "logsumexp", logsumexp, partial(torch.logsumexp, dim=1), (x,)),
        ("normalisation", "softmax", kernels.softmax, partial(torch.softmax, dim=1), (x,)),
        (
            "scan and sort",
            "cumsum",
            partial(kernels.cumsum, axis=1),
            partial(torch.cumsum, dim=1),
            (x,),
        ),
        ("scan and sort", "sort", kernels.sort, torch.sort, (x,)),
        (
            "scan and sort",
            "topk of 40",
            partial(kernels.topk, k=min(40, words)),
            partial(torch.topk, k=min(40, words)),
            (x,),
        ),
    ]
    for family, name, ours, theirs, args in several:
        yield Work(MODEL, family, f"{name}, {rows}x{WORDS}", ours, theirs, args)
    if arrays.device == "cpu":  # their state is uploaded, which no graph captures
        yield noise(arrays, x)


def noise(arrays: Arrays, x: Any) -> Work:
    """As many random numbers as scores."""
    return Work(
        MODEL,
        "random numbers",
        f"normal, {len(x)}x{WORDS}",
        lambda x: kernels.random.normal(tuple(x.shape), like=x, seed=1),
        arrays.torch.randn_like,
        (x,),
        nbytes=x.nbytes,
        tolerance=0.5,
        is_random=True,
    )


def logsumexp(x: Any) -> Any:
    return kernels.logsumexp(x, 1)
