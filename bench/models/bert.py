"""A layer of BERT base, its embedding and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import cubepy as cp
from bench.models.work import Arrays, Work

MODEL = "BERT base"
WIDTH, HEADS, SIZE, INNER, WORDS = 768, 12, 64, 3072, 30522
kernels: Any = cp.kernels


def gelu(v: Any) -> Any:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


def gelu_of_sum(v: Any, index: Any) -> Any:
    """An epilogue, which also gets the place of `v`."""
    return gelu(v)


def works(arrays: Arrays) -> Iterator[Work]:
    """Each makes its arrays when it is reached."""
    rows = arrays.sizes.sequences * arrays.sizes.tokens
    yield from products(arrays, rows)
    yield from heads(arrays)
    yield from rows_of(arrays, rows)
    yield from embedding(arrays, rows)


def products(arrays: Arrays, rows: int) -> Iterator[Work]:
    """The linear layers, with what torch needs further calls for."""
    of, functional = arrays.sizes.of, arrays.torch.nn.functional
    for outs, ins in ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, INNER)):
        yield Work(
            MODEL,
            "product",
            f"{rows}x{outs}x{ins}, bias",
            lambda x, w, b: kernels.matmul(x, w.T, bias=b),
            functional.linear,
            (
                arrays.normal(rows, of(ins)),
                arrays.weight(of(outs), of(ins)),
                arrays.normal(of(outs)),
            ),
            2 * rows * of(outs) * of(ins),
        )
    yield Work(
        MODEL,
        "product",
        f"{rows}x{INNER}x{WIDTH}, bias, gelu",
        lambda x, w, b: kernels.matmul(x, w.T, bias=b, epilogue=gelu_of_sum),
        lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
        (
            arrays.normal(rows, of(WIDTH)),
            arrays.weight(of(INNER), of(WIDTH)),
            arrays.normal(of(INNER)),
        ),
        2 * rows * of(INNER) * of(WIDTH),
    )


def heads(arrays: Arrays) -> Iterator[Work]:
    """Attention, and turning its heads."""
    n, tokens = arrays.sizes.sequences, arrays.sizes.tokens
    size = arrays.sizes.of(SIZE)
    q, k, v = (arrays.normal(n, HEADS, tokens, size) for _ in range(3))
    yield Work(
        MODEL,
        "attention",
        f"{n}x{HEADS} heads, {tokens} tokens of {SIZE}",
        kernels.attention,
        arrays.torch.nn.functional.scaled_dot_product_attention,
        (q, k, v),
        4 * n * HEADS * tokens**2 * size,
    )
    yield Work(
        MODEL,
        "movement",
        f"heads to the front, {n}x{tokens}x{HEADS}x{SIZE}",
        partial(kernels.transpose, axes=(0, 2, 1, 3)),
        lambda x: x.permute(0, 2, 1, 3).contiguous(),
        (arrays.normal(n, tokens, HEADS, size),),
    )
    yield Work(
        MODEL,
        "normalisation",
        f"softmax, {n}x{HEADS}x{tokens}x{tokens}",
        partial(kernels.softmax, axis=-1),
        partial(arrays.torch.softmax, dim=-1),
        (arrays.normal(n, HEADS, tokens, tokens),),
    )


def rows_of(arrays: Arrays, rows: int) -> Iterator[Work]:
    """Norms, activations and what is quantised, row by row."""
    functional, width = arrays.torch.nn.functional, arrays.sizes.of(WIDTH)
    x, w, b = arrays.normal(rows, width), arrays.normal(width), arrays.normal(width)
    yield Work(
        MODEL,
        "normalisation",
        f"layer norm, {rows}x{WIDTH}",
        lambda x, w, b: kernels.layer_norm(x, width, w, b),
        lambda x, w, b: functional.layer_norm(x, (width,), w, b),
        (x, w, b),
    )
    yield Work(
        MODEL,
        "element by element",
        f"gelu, {rows}x{INNER}",
        partial(kernels.map, gelu),
        functional.gelu,
        (arrays.normal(rows, arrays.sizes.of(INNER)),),
    )
    torch, wide = arrays.torch, arrays.normal(rows, width, dtype=arrays.torch.float32)
    yield Work(
        MODEL,
        "quantisation",
        f"int8 by rows, {rows}x{WIDTH}",
        lambda x, s: kernels.quantize(x, s, axis=0),
        lambda x, s: torch.clamp(torch.round(x / s[:, None]), -128, 127).to(torch.int8),
        (wide, wide.abs().amax(1) / 127),
    )


def embedding(arrays: Arrays, rows: int) -> Iterator[Work]:
    """Words in, words out."""
    functional, of = arrays.torch.nn.functional, arrays.sizes.of
    table, words = arrays.normal(of(WORDS), of(WIDTH)), arrays.below(of(WORDS), rows)
    taken = rows * of(WIDTH) * table.element_size()
    yield Work(
        MODEL,
        "movement",
        f"{rows} rows of {WORDS}x{WIDTH}",
        lambda i, t: kernels.gather(t, i, mode="slices"),
        functional.embedding,
        (words, table),
        nbytes=2 * taken + words.nbytes,
    )
    grad = arrays.normal(rows, of(WIDTH), dtype=arrays.torch.float32)
    totals = arrays.torch.zeros(of(WORDS), of(WIDTH), device=arrays.device)
    for order in (True, False):
        how = "in their order" if order else "in any order"
        yield Work(
            MODEL,
            "movement",
            f"{rows} rows added to {WORDS}x{WIDTH}, {how}",
            partial(added, order),
            lambda t, i, g: t.index_add(0, i, g),
            (totals, words, grad),
        )
    yield Work(
        MODEL,
        "loss",
        f"cross-entropy, {rows}x{WORDS}",
        kernels.cross_entropy,
        functional.cross_entropy,
        (arrays.normal(rows, of(WORDS)), words),
    )


def added(order: bool, table: Any, index: Any, rows: Any) -> Any:
    """A gradient of the embedding; in order, equal words are added as they come."""
    return kernels.scatter(table, index, rows, update="add", deterministic=order)
