"""Products of quantised factors and of groups of rows on a GPU, beside torch and cuBLAS:
`python -m bench.gpu_products [--json FILE] [--only TEXT]`.

All are called through torch's tensors in one process, on random data, and timed as replays of
graphs in turns. Weights are (n, k). A row has several peers; its floor is for the first of them
that this torch has. Results are compared with f64; errors are shares of sums of absolute products.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.replays import medians, torch
from cubepy.kernels import Quantised, grouped_matmul, matmul

SAMPLE = 64
"""Rows of a result that are compared."""
ROUNDS = 7
TOLERANCE = 2.0**-6
BLOCK = 128


@dataclass(frozen=True)
class Work:
    """a (m, k) times b (k, n); `kind` says how factors are quantised, `block` how weights are.
    `seed`: of the shares of rows that groups have."""

    kind: str
    m: int
    n: int
    k: int
    block: int = 0
    floor: float | None = None
    seed: int = 0

    def __str__(self) -> str:
        shown = f"{self.kind}{self.block or ''} {self.m}x{self.n}x{self.k}"
        return f"{shown}, shares {self.seed}" if self.seed else shown


@dataclass
class Row:
    """Microseconds of ours, how many times as fast it is as each peer, and the largest error."""

    work: str
    us: float
    ratios: dict[str, float]
    floor: float | None
    error: float


@dataclass
class Case:
    """One product: ours and the peers', and what says how large the error is."""

    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    error: Callable[[], float]


def all_work() -> list[Work]:
    """What is measured: layers of Llama 3 8B, squares, and mixtures of eight experts."""
    return [
        *(Work("int8 rows", m, 4096, 4096) for m in (512, 4096)),
        Work("int8 rows", 8192, 8192, 8192),
        *(Work("f8 blocks", m, 4096, 4096) for m in (128, 512, 4096)),
        Work("f8 blocks", 8192, 8192, 8192),
        *(Work("f8 rows", s, s, s) for s in (4096, 8192)),
        *(Work("int4 /", m, 4096, 4096, 128) for m in (1, 16, 64, 512, 4096)),
        *(Work("int4 /", m, 28672, 4096, 128) for m in (1, 16)),
        Work("int4 /", 16, 4096, 4096, 32),
        *(Work("int8 /", m, 4096, 4096, 128) for m in (1, 16, 512)),
        *(Work("groups", 1024, 4096, 4096, seed=s, floor=1.3) for s in (1, 2, 3)),
        *(Work("groups", m, 4096, 4096, seed=1) for m in (64, 256, 2048, 8192)),
        *(Work("groups", m, 14336, 4096, seed=1) for m in (1024, 8192)),
    ]


def case(work: Work) -> Case:
    """The operands of a row, and those who multiply them."""
    if work.kind == "groups":
        return groups(work)
    if work.kind.endswith("/"):
        return weights(work)
    return rows(work) if work.kind.endswith("rows") else blocks(work)


def random(*shape: int) -> Any:
    return torch().rand(*shape, device="cuda") + 0.1


def bytes_of(kind: str, *shape: int) -> Any:
    if kind.startswith("int8"):
        return torch().randint(-128, 128, shape, device="cuda", dtype=torch().int8)
    return torch().randn(*shape, device="cuda").to(torch().float8_e4m3fn)


def made(work: Work, a: Any, b: Any, left: Any, right: Any) -> tuple[Callable[[], Any], Any]:
    """Our product, and its error; `left` and `right` are what the factors stand for, in f64."""
    out = torch().full((work.m, work.n), float("nan"), device="cuda", dtype=torch().bfloat16)
    dtype = "bfloat16" if isinstance(a, Quantised) else None

    def ours() -> Any:
        return matmul(a, b, dtype=dtype, out=out)

    def error() -> float:
        exact, largest = left @ right.T, left.abs() @ right.abs().T
        return float(((out[-SAMPLE:].double() - exact).abs() / largest).max())

    return ours, error


def rows(work: Work) -> Case:
    """Scales of rows of both factors, as those of layers that are quantised while they run."""
    a, b = bytes_of(work.kind, work.m, work.k), bytes_of(work.kind, work.n, work.k)
    s, t = random(work.m, 1), random(work.n, 1)
    left, right = a[-SAMPLE:].double() * s[-SAMPLE:], b.double() * t
    ours, error = made(work, Quantised(a, s), Quantised(b, t).T, left, right)
    if work.kind == "int8 rows":
        scaled = t.T
        return Case(
            ours,
            {
                "_int_mm alone": lambda: torch()._int_mm(a, b.T),
                "_int_mm, scaled": lambda: (torch()._int_mm(a, b.T) * s * scaled).bfloat16(),
            },
            error,
        )
    out_dtype = torch().bfloat16
    peers = {"_scaled_mm": lambda: torch()._scaled_mm(a, b.T, s, t.T, out_dtype=out_dtype)}
    return Case(ours, peers, error)


def blocks(work: Work) -> Case:
    """Scales of 1 by 128 and of 128 by 128, as in DeepSeek-V3."""
    a, b = bytes_of(work.kind, work.m, work.k), bytes_of(work.kind, work.n, work.k)
    s, t = random(work.m, work.k // BLOCK), random(work.n // BLOCK, work.k // BLOCK)
    left = a[-SAMPLE:].double() * s[-SAMPLE:].double().repeat_interleave(BLOCK, 1)
    right = b.double() * t.double().repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 0)
    factors = Quantised(a, s, block_size=(1, BLOCK)), Quantised(b, t, block_size=(BLOCK, BLOCK)).T
    ours, error = made(work, *factors, left, right)
    outer, one = s.T.contiguous().T, torch().ones((), device="cuda")
    dtype = torch().bfloat16
    peers = {
        "_scaled_mm": lambda: torch()._scaled_mm(a, b.T, outer, t.T, out_dtype=dtype),
        "_scaled_mm, one scale": lambda: torch()._scaled_mm(a, b.T, one, one, out_dtype=dtype),
    }
    return Case(ours, peers, error)


def weights(work: Work) -> Case:
    """Weights of few bits beside bf16; the peers have them as bf16, or make that first."""
    x = torch().randn(work.m, work.k, device="cuda").bfloat16()
    s = (random(work.n, work.k // work.block) * 0.1).bfloat16()
    packed = "int4" if work.kind == "int4 /" else None
    if packed:
        q = torch().randint(-8, 8, (work.n, work.k), device="cuda", dtype=torch().int8)
        stored = ((q[:, ::2] & 15) | (q[:, 1::2] << 4)).view(torch().uint8)
    else:
        q = stored = bytes_of("int8", work.n, work.k)
    layer = Quantised(stored, s, axis=1, block_size=work.block, packed=packed)
    wide = q.double() * s.double().repeat_interleave(work.block, 1)
    near = wide.bfloat16()
    ours, error = made(work, x, layer.T, x[-SAMPLE:].double(), wide)
    options = {"axis": 1, "block_size": work.block, "packed": packed}

    def widened() -> Any:
        w = cp.kernels.dequantize(stored, s, None, "bfloat16", **options)
        return torch().matmul(x, w.T)

    return Case(
        ours,
        {"dequantize, cuBLAS": widened, "cuBLAS bf16": lambda: torch().matmul(x, near.T)},
        error,
    )


def groups(work: Work) -> Case:
    """Uneven groups of rows, each with a matrix; the peer is a loop of cuBLAS that knows where they
    end."""
    shares = torch().rand(8, generator=torch().Generator().manual_seed(work.seed))
    ends = (shares.cumsum(0) / shares.sum() * work.m).round().int()
    edges, device_ends = [0, *ends.tolist()], ends.cuda()
    x = torch().randn(work.m, work.k, device="cuda").bfloat16()
    w = torch().randn(8, work.n, work.k, device="cuda").bfloat16().transpose(1, 2)
    out = torch().full((work.m, work.n), float("nan"), device="cuda", dtype=torch().bfloat16)
    other = torch().empty_like(out)
    spans = [(k, slice(*pair)) for k, pair in enumerate(pairwise(edges)) if pair[0] < pair[1]]

    def loop() -> None:
        for k, span in spans:
            torch().matmul(x[span], w[k], out=other[span])

    def error() -> float:
        k, span = spans[-1]
        left, right = x[span][-SAMPLE:].double(), w[k].double()
        found = out[span][-SAMPLE:].double()
        return float(((found - left @ right).abs() / (left.abs() @ right.abs())).max())

    peers = {
        "loop of cuBLAS": loop,
        "_grouped_mm": lambda: torch()._grouped_mm(x, w, offs=device_ends),
    }
    return Case(lambda: grouped_matmul(x, w, device_ends, out=out), peers, error)


def measured(work: Work) -> Row:
    """One row."""
    made = case(work)
    made.ours()
    error = made.error()
    peers = {name: call for name, call in made.peers.items() if works(call)}
    times = medians({"ours": made.ours, **peers}, ROUNDS)
    ratios = {name: times[name] / times["ours"] for name in peers}
    return Row(str(work), 1e3 * times["ours"], ratios, work.floor, error)


def works(call: Callable[[], Any]) -> bool:
    """Whether this torch has a peer."""
    try:
        call()
    except (RuntimeError, AttributeError, TypeError):
        return False
    return True


def main() -> None:
    """Print the table; optionally write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_products")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    options = parser.parse_args()
    print(f"{torch().cuda.get_device_name()}, torch {torch().__version__}", flush=True)
    found: list[Row] = []
    for work in all_work():
        if options.only in str(work):
            found.append(measured(work))
            show(found[-1])
    if options.json:
        device = torch().cuda.get_device_name()
        report = {"device": device, "rows": [asdict(row) for row in found]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def show(row: Row) -> None:
    """One line of the table."""
    shown = ", ".join(f"x{ratio:.3f} of {name}" for name, ratio in row.ratios.items())
    verdict = "" if row.error <= TOLERANCE else "  WRONG"
    if row.floor is not None and row.ratios:
        reached = next(iter(row.ratios.values())) >= row.floor
        verdict += f"  floor {row.floor} {'pass' if reached else 'MISS'}"
    print(f"{row.work:28} {row.us:8.1f} us  {shown}  error {row.error:.1e}{verdict}", flush=True)


if __name__ == "__main__":
    main()
