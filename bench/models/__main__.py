"""Layers of ResNet-50, BERT and Llama 3 beside torch: `python -m bench.models [--device cuda]
[--json FILE] [--only TEXT] [--threads N] [--check]`.

Both sides take the same tensors (f32 on a CPU; bf16 on a GPU, where a work does not say f32) and
return new ones, in turns, in one process; on a GPU as replays of graphs. Results are compared with
torch's in f64. Roofs are a large copy and a large product, the faster of both, of the same run.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import cubepy as cp
from bench import machine, measure, peers
from bench.models import bert, llama, resnet
from bench.models.record import Record, Roofs, Row
from bench.models.work import CPU, GPU, SMALL, Arrays, Work, select
from bench.replays import medians

MODELS = (resnet, bert, llama)
PLAN = measure.Plan(rounds=7, limit=3.0, least=3, warm=0.03, bursts=3, burst=0.003)
MIB = 1 << 20
Calls = dict[str, Callable[[], Any]]


def all_works(arrays: Arrays) -> Iterator[Work]:
    """One after the other, so that few arrays live at a time."""
    return (work for model in MODELS for work in model.works(arrays))


def seconds(calls: Calls, device: str) -> dict[str, float]:
    """Medians of what take turns."""
    if device == "cpu":
        found = measure.measure(calls, PLAN)
        return {name: found.median(name) for name in calls}
    return {name: 1e-3 * ms for name, ms in medians(calls).items()}


def same(v: Any) -> Any:
    return v


def roofs(arrays: Arrays) -> Roofs:
    """A copy of what no cache holds, and a product of squares, by whoever is faster."""
    is_cpu = arrays.device == "cpu"
    x = torch.randn((64 if is_cpu else 256) * MIB, device=arrays.device)
    out, side = torch.empty_like(x), 2048 if is_cpu else 8192
    copies: Calls = {
        "ours": lambda: cp.kernels.map(same, x, out=out),
        "theirs": lambda: out.copy_(x),
    }
    a, b = (arrays.normal(side, side) for _ in range(2))
    product = torch.empty_like(a)
    products: Calls = {
        "ours": lambda: cp.kernels.matmul(a, b, out=product),
        "theirs": lambda: torch.matmul(a, b, out=product),
    }
    copy, multiply = (min(seconds(c, arrays.device).values()) for c in (copies, products))
    return Roofs(2 * x.nbytes / copy / 1e9, 2 * side**3 / multiply / 1e9)


def measured(work: Work, device: str) -> Row:
    """Both sides, and how far ours is from torch in f64."""
    error = work.error()
    calls: Calls = {
        "ours": lambda: work.ours(*work.args),
        "theirs": lambda: work.theirs(*work.args),
    }
    found = seconds(calls, device)
    shown = (work.model, work.family, work.name)
    return Row(*shown, work.flops, work.moved, found["ours"], found["theirs"], error)


def describe(device: str, threads: int) -> dict[str, str]:
    """The machine, and what ran on it."""
    versions = {"torch": torch.__version__, "cubepy": cp.__version__}
    if device == "cpu":
        found = machine.describe()
        kept = ("cpu", "cores", "caches", "system", "load", "python")
        shown = {name: found[name] for name in kept}
        return {**shown, **versions, "threads": f"{threads} for each side"}
    return {"gpu": torch.cuda.get_device_name(), **versions}


def run(device: str, only: str, threads: int) -> Record:
    """Every work whose name has `only`."""
    is_cpu = device == "cpu"
    if is_cpu:
        peers.set_threads(threads)
    arrays = Arrays(torch, device, *((torch.float32, CPU) if is_cpu else (torch.bfloat16, GPU)))
    record = Record(describe(device, threads), roofs(arrays))
    for work in select(all_works(arrays), only):
        record.rows.append(measured(work, device))
        print(record.rows[-1], "WRONG" * (record.rows[-1].error > work.tolerance), flush=True)
        gc.collect()
    return record


def wrong(device: str, only: str = "") -> list[str]:
    """The works whose small results are not torch's in f64."""
    arrays = Arrays(torch, device, torch.float32, SMALL)
    return [
        f"{work.model}, {work.family}, {work.name}: off by {error:.1e}"
        for work in select(all_works(arrays), only)
        if (error := work.error()) > work.tolerance
    ]


def main() -> None:
    """Print rows as they are measured; optionally write them."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=peers.all_cores())
    parser.add_argument("--check", action="store_true", help="compare small results; no times")
    options = parser.parse_args()
    with torch.no_grad():
        if options.check:
            found = wrong(options.device, options.only)
            print("\n".join([*found, f"{len(found)} problems"]))
            raise SystemExit(bool(found))
        record = run(options.device, options.only, options.threads)
    if options.json:
        record.write(options.json)


if __name__ == "__main__":
    main()
