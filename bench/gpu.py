"""Memory-bound kernels on a GPU beside torch: `python -m bench.gpu [--json FILE] [--only NAME]`.

Times are medians of device timings (CUDA events around a batch of launches) on random data larger
than the cache; GB/s counts each byte that must move once. Peers run in the same process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench import portable_kernels as kernels

BATCH, ROUNDS = 10, 15
GIB = 1 << 30


@dataclass
class Row:
    """One line of the table. `floor`: what `peer` time over ours must reach, or a share of copy."""

    work: str
    ms: float
    gbps: float
    peers: dict[str, float]
    floor: str
    ratio: float
    error: float


def torch() -> Any:
    import torch

    return torch


def device_ms(call: Callable[[], Any]) -> float:
    """The median time of a call on the device."""
    cuda = torch().cuda
    for _ in range(3):
        call()
    cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda._sleep(2_000_000)  # the queue fills meanwhile, so that launches cost no time
        start.record()
        for _ in range(BATCH):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / BATCH)
    return statistics.median(times)


def measured(
    work: str,
    call: Callable[[], Any],
    nbytes: int,
    peers: dict[str, Callable[[], Any]],
    floor: tuple[str, float],
    error: float,
) -> Row:
    """Ours and its peers, interleaved twice."""
    ours = min(device_ms(call), device_ms(call))
    found = {name: min(device_ms(peer), device_ms(peer)) for name, peer in peers.items()}
    name, least = floor
    ratio = found[name] / ours
    return Row(work, ours, nbytes / ours / 1e6, found, f"{least} x {name}", ratio, error)


def fastest(candidates: dict[str, Callable[[], Any]]) -> tuple[str, Callable[[], Any]]:
    """The candidate that is the fastest on the device, with its name."""
    for call in candidates.values():
        call()
    name = min(candidates, key=lambda n: device_ms(candidates[n]))
    return name, candidates[name]


def random(*shape: int) -> Any:
    return torch().randn(*shape, device="cuda")


def worst(found: Any, expected: Any) -> float:
    """The largest difference over the largest value, in f64."""
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def copy_row() -> Row:
    x = random(GIB // 4)
    out = torch().full_like(x, float("nan"))
    call = kernels.copy.over(out).bind(x, out)
    call()
    peers = {"torch copy_": lambda: out.copy_(x)}
    return measured("copy 1 GiB", call, 2 * x.nbytes, peers, ("torch copy_", 0.98), worst(out, x))


def gated_gelu_row() -> Row:
    x = random(1 << 28)
    out = torch().full_like(x, float("nan"))
    candidates: dict[str, Callable[[], Any]] = {}
    for width in (4, 8, 16):
        kernel = kernels.gated_gelu.configure(line_size=width)
        for dim in (128, 256, 512):
            candidates[f"{width}x{dim}"] = kernel.over(out, cube_dim=dim).bind(x, out)
    name, call = fastest(candidates)
    out.fill_(float("nan"))
    call()

    def eager(v: Any) -> Any:
        return torch().nn.functional.gelu(v * 1.5 + 0.5) * torch().sigmoid(v)

    part = x[: 1 << 22].double()
    error = worst(out[: 1 << 22], eager(part))
    peers = {"torch": lambda: eager(x), "torch.compile": compiled(eager, x)}
    work = f"gelu(x*1.5+0.5)*sigmoid(x), 256 Mi, lines of {name}"
    return measured(work, call, 2 * x.nbytes, peers, ("torch.compile", 1.03), error)


def compiled(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    made = torch().compile(function)
    made(*args)
    return lambda: made(*args)


SIDE = 16384


def sum_rows() -> list[Row]:
    t, x = torch(), random(SIDE, SIDE)
    rows, cubes = t.empty(SIDE, device="cuda"), 132 * 16
    partial, total = t.empty(cubes, device="cuda"), t.empty(1, device="cuda")
    columns = t.empty(1, SIDE, device="cuda")
    all_columns = fastest({str(n): columns_call(x, columns, n) for n in (32, 64, 128, 256, 512)})
    each = kernels.sum_rows[SIDE, 256].bind(x, rows)
    first = kernels.sum_shares[cubes, 512].bind(x, partial)
    second = kernels.sum_shares[1, 1024].bind(partial, total)

    def everything() -> None:
        first()
        second()

    for call in (each, everything, all_columns[1]):
        call()
    wide = x.double()
    table = [
        ("sum of all", everything, lambda: x.sum(), total[0], wide.sum()),
        ("sum of rows", each, lambda: x.sum(1), rows, wide.sum(1)),
        (
            f"sum of columns, bands of {all_columns[0]}",
            all_columns[1],
            lambda: x.sum(0),
            columns[0],
            wide.sum(0),
        ),
    ]
    return [
        measured(f"{work}, {SIDE}^2", call, x.nbytes, {"torch": peer}, ("torch", 1.0), worst(a, b))
        for work, call, peer, a, b in table
    ]


def columns_call(x: Any, out: Any, band: int) -> Callable[[], None]:
    """Sums of bands of rows, then of the bands."""
    bands = SIDE // band
    partial = torch().empty(bands, SIDE, device="cuda")
    first = kernels.sum_columns[(SIDE // 4 // 128, bands), (128, 1)].bind(x, partial, band)
    second = kernels.sum_columns[(SIDE // 4 // 32, 1), (32, 1)].bind(partial, out, bands)

    def call() -> None:
        first()
        second()

    return call


def softmax_row() -> Row:
    x = random(SIDE, SIDE)
    out = torch().full_like(x, float("nan"))
    call = kernels.softmax_rows[SIDE, 512].bind(x, out, SIDE // 4)
    call()

    def eager(v: Any) -> Any:
        return torch().softmax(v, 1)

    error = worst(out[:512], eager(x[:512].double()))
    peers = {"torch": lambda: eager(x), "torch.compile": compiled(eager, x)}
    work = f"softmax of rows, {SIDE}^2"
    return measured(work, call, 2 * x.nbytes, peers, ("torch.compile", 1.1), error)


POOLS = (((3, 1, 1), 1.4), ((3, 2, 1), 1.1), ((2, 2, 0), 1.0))


def pool_rows() -> list[Row]:
    return [pool_row(window, least) for window, least in POOLS]


def pool_row(window: tuple[int, int, int], least: float) -> Row:
    size, stride, pad = window
    x = random(2, 128, 512, 512)

    def eager(v: Any) -> Any:
        return torch().nn.functional.max_pool2d(v, size, stride, pad)

    expected = eager(x)
    out = torch().full_like(expected, float("nan"))
    planes, side = 256, expected.shape[-1]
    seen, given = x.view(planes, 512, 512), out.view(planes, side, side)
    candidates: dict[str, Callable[[], Any]] = {}
    for band in (1, 2, 4, 8):
        for units, deep in ((side // 4, 1), (side // 4, 2), (side // 4, 4), (32, 4), (32, 8)):
            grid = (side // 4 // units, -(-side // (band * deep)), planes), (units, deep, 1)
            bound = kernels.max_pool[grid].bind(seen, given, size, stride, pad, band)
            candidates[f"{band}x{deep}x{units}"] = bound
    name, call = fastest(candidates)
    out.fill_(float("nan"))
    call()
    assert torch().equal(out, expected)
    peers = {"torch": lambda: eager(x), "torch.compile": compiled(eager, x)}
    work = f"max_pool2d (2,128,512,512) {size}/{stride}/{pad}, {name}"
    nbytes = x.nbytes + out.nbytes
    return measured(work, call, nbytes, peers, ("torch.compile", least), 0.0)


def compile_row() -> tuple[float, float]:
    """Milliseconds from a new small kernel to a finished launch, and those of NVRTC alone."""
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


SUITE: dict[str, Callable[[], Any]] = {
    "copy": copy_row,
    "gelu": gated_gelu_row,
    "sum": sum_rows,
    "softmax": softmax_row,
    "pool": pool_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    name = torch().cuda.get_device_name()
    print(f"{name}, torch {torch().__version__}, CubePy {cp.__version__}")
    rows: list[Row] = []
    for key, make in SUITE.items():
        if options.only in key:
            made = make()
            rows += made if isinstance(made, list) else [made]
            torch().cuda.empty_cache()
            for row in made if isinstance(made, list) else [made]:
                show(row)
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
