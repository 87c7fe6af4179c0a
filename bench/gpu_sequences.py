"""Attention of sequences, pages and windows on a GPU: `python -m bench.gpu_sequences`.

Times are medians of replays of captured graphs, ours and the peers' in turns, in one process on
random data. Peers of ragged batches and of windows are torch's `varlen_attn` and `flex_attention`
(compiled); torch attends to no pages, so their peer is its fastest backend on keys in one piece.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.gpu_attention import without_wgmma
from bench.replays import medians, torch

Calls = dict[str, Callable[[], Any]]
LENGTHS = (4096, 1, 2500, 300, 8192, 77, 1024, 2048)
"""Of the sequences of a ragged batch."""


@dataclass
class Row:
    """One line of the table: milliseconds of ours and of the peers, and the ratio to the fastest
    of those. `error`: the largest difference from the first."""

    work: str
    ms: float
    peers: dict[str, float]
    ratio: float
    error: float


def numbers(*shape: int) -> Any:
    return torch().randn(shape, device="cuda", dtype=torch().bfloat16)


def ragged(heads: int, kv_heads: int, causal: bool) -> Calls:
    """Sequences of `LENGTHS`, heads of 128 elements."""
    from torch.nn.attention import varlen

    attend: Any = varlen.varlen_attn
    count, longest = sum(LENGTHS), max(LENGTHS)
    q, k, v = numbers(count, heads, 128), *(numbers(count, kv_heads, 128) for _ in range(2))
    ends = torch().tensor((0, *LENGTHS), device="cuda").cumsum(0).to(torch().int32)
    wide = [x.repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
    sides: Any = (-1, 0) if causal else (-1, -1)

    def peer() -> Any:
        return attend(q, *wide, ends, ends, longest, longest, window_size=sides)

    def older() -> Any:
        return attend(q, *wide, ends, ends, longest, longest, causal)

    return {
        "cubepy": lambda: cp.kernels.attention_ragged(q, k, v, ends, causal=causal),
        "varlen_attn": _that_works(peer, older),
    }


def _that_works(*calls: Callable[[], Any]) -> Callable[[], Any]:
    """The first that the installed torch takes."""
    for call in calls[:-1]:
        try:
            call()
        except TypeError:
            continue
        return call
    return calls[-1]


def paged(batch: int, keys: int, page: int, small: bool = False) -> Calls:
    """One query for each of 64 heads, of which 8 share keys; `small`: in 8 bits, of which torch
    has none."""
    pages = batch * keys // page
    q, k, v = numbers(batch, 1, 64, 128), numbers(batch, 8, keys, 128), numbers(batch, 8, keys, 128)
    table = torch().randperm(pages, device="cuda").to(torch().int32).view(batch, -1)
    pools = []
    for x in (k, v):
        rows = x.transpose(1, 2).reshape(pages, page, 8, 128)
        pool = torch().empty_like(rows)
        pool[table.view(-1).long()] = rows
        pools.append(pool)
    lengths = torch().full((batch,), keys, device="cuda", dtype=torch().int32)
    given = [x.to(torch().float8_e4m3fn) if small else x for x in (q, *pools)]

    def peer() -> Any:
        attend = torch().nn.functional.scaled_dot_product_attention
        return attend(q.transpose(1, 2), k, v, enable_gqa=True).transpose(1, 2)

    return {
        "cubepy": lambda: cp.kernels.attention_paged(*given, table, lengths, dtype=q.dtype),
        "torch, one piece": peer,
    }


def decoding(heads: int, kv_heads: int) -> Calls:
    """One query for each head of sequences of `LENGTHS`, eight times as long."""
    from torch.nn.attention import varlen

    attend: Any = varlen.varlen_attn
    lengths = [8 * n for n in LENGTHS]
    q, k, v = numbers(8, heads, 128), *(numbers(sum(lengths), kv_heads, 128) for _ in range(2))
    starts = torch().arange(9, device="cuda", dtype=torch().int32)
    ends = torch().tensor((0, *lengths), device="cuda").cumsum(0).to(torch().int32)
    wide = [x.repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
    return {
        "cubepy": lambda: cp.kernels.attention_ragged(q, k, v, starts, ends),
        "varlen_attn": lambda: attend(q, *wide, starts, ends, 1, max(lengths)),
    }


def window(length: int, before: int) -> Calls:
    """Causal attention of 16 heads that sees `before` keys before each query."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (numbers(1, 16, length, 128) for _ in range(3))

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j <= before)

    mask: Any = create_block_mask(sees, None, None, length, length, device="cuda")
    compiled: Any = torch().compile(flex_attention)
    return {
        "cubepy": lambda: cp.kernels.attention(q, k, v, causal=True, window=(before, None)),
        "flex_attention": lambda: compiled(q, k, v, block_mask=mask),
    }


WORK: dict[str, Callable[[], Calls]] = {
    "paged, 32 x 8192 keys, pages of 64": lambda: paged(32, 8192, 64),
    "paged, 32 x 8192 keys, pages of 16": lambda: paged(32, 8192, 16),
    "paged, 1 x 131072 keys, pages of 64": lambda: paged(1, 131072, 64),
    "paged, 32 x 8192 keys, pages of 64, 8 bits": lambda: paged(32, 8192, 64, True),
    "paged, 32 x 8192 keys, pages of 16, 8 bits": lambda: paged(32, 8192, 16, True),
    "ragged, 16 heads": lambda: ragged(16, 16, False),
    "ragged, 16 heads, causal": lambda: ragged(16, 16, True),
    "ragged, 32 heads, 8 of keys, causal": lambda: ragged(32, 8, True),
    "ragged, one query of 64 heads, 8 of keys": lambda: decoding(64, 8),
    "window of 1024 keys, 16384 queries": lambda: window(16384, 1024),
}


def measured(work: str, calls: Calls) -> Row:
    """One row."""
    results = {name: call().float() for name, call in calls.items()}
    names = [name for name in calls if name != "cubepy"]
    error = (results["cubepy"] - results[names[0]]).abs().max().item()
    ms = medians(calls)
    ours = ms.pop("cubepy")
    return Row(work, ours, ms, min(ms.values()) / ours, error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--fragments", action="store_true", help="ours by mma instead of wgmma")
    options = parser.parse_args()
    if options.fragments:
        without_wgmma()
    rows: list[Row] = []
    for work, make in WORK.items():
        if options.only in work:
            rows.append(measured(work, make()))
            print(f"{work:40} {rows[-1].ms:8.4f} ms {rows[-1].ratio:6.3f} of {rows[-1].peers}")
    if options.json:
        report = {"device": torch().cuda.get_device_name(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
