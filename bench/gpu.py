"""Memory-bound prebuilt functions on a GPU beside torch: `python -m bench.gpu [--json FILE]
[--only NAME]`.

Ours and the peers take the same tensors in one process. Times are medians of replays of CUDA
graphs, in turns, each of a batch of calls on random data; GB/s counts each byte that must move
once. Data of less than some 50 MB stays in the last cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.gpu_arrays import torch
from bench.gpu_rows import SUITE, Work
from bench.replays import medians


@dataclass
class Row:
    """One line of the table. `floor`: what `peer` time over ours must reach."""

    work: str
    ms: float
    gbps: float
    peers: dict[str, float]
    floor: str
    ratio: float
    error: float


def measured(work: Work) -> Row:
    """Ours and its peers."""
    with torch().no_grad():
        error = work.error()
        found = medians({"ours": work.ours, **work.peers})
    ours = found.pop("ours")
    name, least = work.floor
    gbps, ratio = work.nbytes / ours / 1e6, found[name] / ours
    return Row(work.name, ours, gbps, found, f"{least} x {name}", ratio, error)


def compile_row() -> tuple[float, float]:
    """Milliseconds from a new small kernel to a finished launch, and those of NVRTC alone; what an
    earlier run kept on disk is not asked for."""
    from cubepy.compilers.cuda import toolchain

    x = cp.zeros(1024, device="cuda:0")
    spent: list[float] = []
    original = toolchain.to_cubin

    def timed(*args: Any) -> bytes:
        start = time.perf_counter()
        found = original(*args)
        spent.append(time.perf_counter() - start)
        return found

    toolchain.to_cubin = timed
    whole = []
    with cp.settings(cache=False):
        for k in range(7):
            start = time.perf_counter()
            shifted.over(x)(x, x, k)
            cp.synchronize("cuda:0")
            whole.append(time.perf_counter() - start)
    toolchain.to_cubin = original
    return 1e3 * statistics.median(whole), 1e3 * statistics.median(spent)


@cp.cube
def shifted(x: cp.Tensor, out: cp.Tensor, by: cp.Comptime[int]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + by


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    name = torch().cuda.get_device_name()
    print(f"{name}, torch {torch().__version__}, CubePy {cp.__version__}")
    rows: list[Row] = []
    for key, works in SUITE.items():
        if options.only in key:
            for work in works():
                rows.append(measured(work))
                show(rows[-1])
            torch().cuda.empty_cache()
    whole, nvrtc = compile_row()
    print(f"compile of a small kernel: {whole:.1f} ms, of that NVRTC {nvrtc:.1f} ms")
    if options.json:
        found = {"device": name, "rows": [asdict(r) for r in rows]}
        found["compile_ms"], found["nvrtc_ms"] = whole, nvrtc
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def show(row: Row) -> None:
    peers = ", ".join(f"{n} {ms:.4f}" for n, ms in row.peers.items())
    least = float(row.floor.split()[0])
    verdict = "pass" if row.ratio >= least else "MISS"
    print(
        f"{row.work:42} {row.ms:8.4f} ms {row.gbps:6.0f} GB/s  {peers:48} "
        f"ratio {row.ratio:.3f} floor {row.floor:20} error {row.error:.1e} {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    main()
