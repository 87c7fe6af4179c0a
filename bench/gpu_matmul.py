"""Products of matrices on a GPU beside cuBLAS: `python -m bench.gpu_matmul [--json FILE]`.

Both are called through torch's tensors in one process, on random data, and timed as replays of
graphs in turns. Weights are (n, k), as layers of networks have them, unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.replays import medians, torch

LAYERS = {
    "8B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
}
"""Rows and columns of the weights of layers of Llama 3."""
PREFILL = (512, 1024, 2048, 4096, 8192)
SAMPLE = 64
"""Rows of a result that are compared with f64."""


@dataclass(frozen=True)
class Work:
    """a (m, k) times b (k, n): `dense` is the axis of b that is dense in memory."""

    group: str
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    dense: str = "k"
    precision: str | None = None
    floor: float | None = None

    def __str__(self) -> str:
        shown = f"{self.group} {self.m}x{self.n}x{self.k} {self.dtype}"
        shown += "" if self.dense == "k" else ", rows"
        return shown if self.precision is None else f"{shown} {self.precision}"


@dataclass
class Row:
    """TFLOP/s of both, their ratio, and the largest error as a share of the largest value."""

    work: str
    ours: float
    cublas: float
    ratio: float
    floor: float | None
    error: float


def all_work() -> list[Work]:
    """What is measured."""
    shapes = [(m, n, k) for layers in LAYERS.values() for n, k in layers for m in PREFILL]
    return [
        *(Work("square", s, s, s, floor=f) for s, f in ((4096, 1.01), (8192, 1.02))),
        *(Work("square", s, s, s, "float16", floor=f) for s, f in ((4096, 1.01), (8192, 1.02))),
        *(Work("square", s, s, s, dense="n") for s in (4096, 8192)),
        *(Work("prefill", *shape) for shape in shapes),
        *(Work("odd", *shape) for shape in ((1000, 1000, 1000), (5000, 3000, 4096), (130, 264, 8))),
        Work("bytes", 8192, 8192, 8192, "float8_e4m3fn", floor=1.0, precision="fast_accum"),
        *(Work("bytes", s, s, s, "float8_e4m3fn") for s in (4096, 8192)),
        *(Work("bytes", s, s, s, "int8") for s in (4096, 8192)),
        *(Work("tf32", s, s, s, "float32", precision="tf32") for s in (4096, 8192)),
        *(
            Work("f32", s, s, s, "float32", floor=1.0 if s == 4096 else None)
            for s in (512, 1024, 2048, 4096, 8192)
        ),
        *(Work("f32", s, s, s, "float32", dense="n") for s in (4096, 8192)),
        *(Work("f32", m, 4096, 4096, "float32") for m in (1, 16, 128)),
        Work("f32", 128, 128, 1 << 16, "float32"),
        Work("f64", 4096, 4096, 4096, "float64"),
        *(Work("unaligned", 4095, 4097, 4099, dtype) for dtype in ("float32", "bfloat16")),
        Work("unaligned", 4095, 4097, 4099, "float32", precision="tf32"),
    ]


def factors(work: Work) -> tuple[Any, Any]:
    """Random ones; of bytes small numbers, so that f8 holds them."""

    def random(*shape: int) -> Any:
        made = torch().randn(*shape, device="cuda")
        return (made * 8 if work.dtype == "int8" else made).to(getattr(torch(), work.dtype))

    a = random(work.m, work.k)
    return a, random(work.n, work.k).T if work.dense == "k" else random(work.k, work.n)


def cublas(work: Work, a: Any, b: Any) -> Callable[[], Any]:
    """torch's product, by the same precision."""
    if work.dtype.startswith("float8"):
        one, fast = torch().ones((), device="cuda"), work.precision == "fast_accum"
        options = {"out_dtype": torch().bfloat16, "use_fast_accum": fast}
        return lambda: torch()._scaled_mm(a, b, one, one, **options)
    if work.dtype == "int8":
        return lambda: torch()._int_mm(a, b)
    torch().backends.cuda.matmul.allow_tf32 = work.precision == "tf32"
    out = torch().empty(work.m, work.n, dtype=a.dtype, device="cuda")
    return lambda: torch().matmul(a, b, out=out)


def contenders(work: Work, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    """Ours and cuBLAS by name; ours gives its result, which nothing has been written to before."""
    peer = cublas(work, a, b)
    peer()
    dtype = "bfloat16" if work.dtype.startswith("float8") else None
    found = cp.kernels.matmul(a, b, precision=work.precision, dtype=dtype)
    out = torch().full_like(found, 77 if work.dtype == "int8" else float("nan"))

    def ours() -> Any:
        return cp.kernels.matmul(a, b, precision=work.precision, dtype=dtype, out=out)

    return {"ours": ours, "cublas": peer}


def measured(work: Work) -> Row:
    """One row."""
    a, b = factors(work)
    both = contenders(work, a, b)
    times = medians(both)
    out = both["ours"]()
    expected = a[-SAMPLE:].double() @ b.double()
    error = float((out[-SAMPLE:].double() - expected).abs().max() / expected.abs().max())
    flops = 2e-9 * work.m * work.n * work.k
    rates = {name: flops / ms for name, ms in times.items()}
    ratio = times["cublas"] / times["ours"]
    return Row(str(work), rates["ours"], rates["cublas"], ratio, work.floor, error)


def main() -> None:
    """Print the table; optionally write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_matmul")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    options = parser.parse_args()
    rows: list[Row] = []
    print(f"{torch().cuda.get_device_name()}, torch {torch().__version__}; TFLOP/s", flush=True)
    for work in all_work():
        if options.only in str(work):
            rows.append(measured(work))
            show(rows[-1])
    prefill = [row.ratio for row in rows if row.work.startswith("prefill")]
    if prefill:
        mean, least = statistics.geometric_mean(prefill), min(prefill)
        print(f"prefill: geometric mean {mean:.3f} of cuBLAS, at least {least:.3f}")
    if options.json:
        device = torch().cuda.get_device_name()
        report = {"device": device, "rows": [asdict(row) for row in rows]}
        text = json.dumps(report, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


def show(row: Row) -> None:
    verdict = "" if row.floor is None else f"  {'pass' if row.ratio >= row.floor else 'MISS'}"
    limit = "" if row.floor is None else f" floor {row.floor}"
    numbers = f"{row.ours:7.0f} cuBLAS {row.cublas:7.0f}  x{row.ratio:.3f}{limit}"
    print(f"{row.work:44} {numbers}  error {row.error:.1e}{verdict}", flush=True)


if __name__ == "__main__":
    main()
