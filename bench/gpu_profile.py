"""What binds the rows of `bench.gpu` and `bench.gpu_matmul` that miss their floor, beside the
fastest peer: `python -m bench.gpu_profile [--only NAME] [--json FILE]`.

Two measurements of each contender. *Steady*: replays of a graph for a second, with the clock and
the power that the driver reports meanwhile: at its power limit a GPU lowers its clock. *Alone*:
Nsight Compute runs its kernels one at a time and reads the counters: the share of time that tensor
cores and memory work, and what most warps wait for. `ncu` must be on the path and be allowed to
read counters; clocks are left as they are.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import gpu_matmul, gpu_rows
from bench.replays import captured, replay_ms, torch

SECONDS = 1.0
"""How long a contender runs in its steady state."""
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "WarpStateStats")
"""Groups of counters that are read."""
COUNTERS = (
    "sm__pipe_tensor_cycles_active",
    "sm__pipe_fma_cycles_active",
    "gpu__dram_throughput",
    "sm__inst_issued",
)
"""What `Profile` has as `tensor`, `fma`, `dram` and `issue`."""
STALL = re.compile(r"issue_stalled_(\w+)_per_issue_active\.ratio")
SEPARATOR = "spin_kernel"
"""The kernel that stands between contenders in a profile."""
MATMULS = (
    "square 4096x4096x4096 bfloat16",
    "square 4096x4096x4096 float16",
    "square 8192x8192x8192 float16",
    "f32 4096x4096x4096 float32",
)
"""Rows of `bench.gpu_matmul`."""
ROWS = {
    "copy": ("copy, f32",),
    "softmax": ("f32, 4096x1024",),
    "norm": ("rms_norm, f32",),
    "channels": ("batch_norm",),
    "pool": ("3/2/1", "2/2/0"),
}
"""Names of rows of a part of `bench.gpu`."""
Calls = dict[str, Callable[[], Any]]


@dataclass
class Profile:
    """One contender of a row: times in milliseconds, the clock in MHz, the power in watts, which
    reads lower for the first of a row as it begins cool; shares of the peak in percent. `stalls`:
    the three longest by their cause, in cycles for each instruction that a warp issues."""

    work: str
    contender: str
    steady_ms: float = 0.0
    mhz: float = 0.0
    watts: float = 0.0
    alone_ms: float = 0.0
    tensor: float = 0.0
    fma: float = 0.0
    dram: float = 0.0
    issue: float = 0.0
    stalls: dict[str, float] = field(default_factory=dict)


def all_calls(only: str) -> Iterator[tuple[str, Calls]]:
    """The contenders of each row."""
    for work in gpu_matmul.all_work():
        if str(work) in MATMULS and only in str(work):
            yield str(work), gpu_matmul.contenders(work, *gpu_matmul.factors(work))
    for key, names in ROWS.items():
        for row in gpu_rows.SUITE[key]():
            if only in row.name and any(name in row.name for name in names):
                peer = row.floor[0]
                yield row.name, {"ours": row.ours, peer: row.peers[peer]}


# Steady


def steady(work: str, name: str, call: Callable[[], Any]) -> Profile:
    """Replays for a second: their median time, and the medians of the clock and of the power."""
    call()
    graph = captured([call])
    count = max(1, int(SECONDS * 1e3 / replay_ms(graph)))
    with sampled() as found:
        times = [replay_ms(graph) for _ in range(count)]
    last = {key: values[len(values) // 2 :] for key, values in found.items()}
    mhz, watts = (statistics.median(last[key] or [0.0]) for key in ("mhz", "watts"))
    return Profile(work, name, statistics.median(times[count // 2 :]), mhz, watts)


@contextmanager
def sampled() -> Iterator[dict[str, list[float]]]:
    """Clock and power, read every 10 ms meanwhile."""
    found: dict[str, list[float]] = {"mhz": [], "watts": []}
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.01):
            found["mhz"].append(float(torch().cuda.clock_rate()))
            found["watts"].append(torch().cuda.power_draw() / 1e3)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield found
    finally:
        ended.set()
        reader.join()


# Alone


def run_between_separators(only: str) -> None:
    """What `ncu` runs: each contender once, behind a kernel that separates it from the others."""
    for _, calls in all_calls(only):
        for call in calls.values():
            call()
            torch().cuda.synchronize()
            torch().cuda.profiler.start()
            torch().cuda._sleep(1000)
            call()
            torch().cuda.synchronize()
            torch().cuda.profiler.stop()


def profiled(only: str) -> list[list[dict[str, str]]]:
    """The counters of the kernels of each contender, in the order in which they ran."""
    if shutil.which("ncu") is None:
        raise SystemExit("bench.gpu_profile needs Nsight Compute: no ncu on the path")
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none"]
    command += ["--csv", "--page", "raw", "--print-units", "base"]
    command += [part for name in SECTIONS for part in ("--section", name)]
    command += [sys.executable, "-m", "bench.gpu_profile", "--child", "--only", only]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return split(text)


def split(text: str) -> list[list[dict[str, str]]]:
    """The rows of `ncu`'s table by contender; its second line has units."""
    lines = text[text.index('"ID"') :].splitlines()
    found: list[list[dict[str, str]]] = []
    for row in list(csv.DictReader(lines))[1:]:
        if SEPARATOR in row["Kernel Name"]:
            found.append([])
        else:
            found[-1].append(row)
    return found


def add_counters(made: Profile, kernels: list[dict[str, str]]) -> None:
    """Counters of all kernels of a contender, weighed by their time."""
    times = [number(row["gpu__time_duration.sum"]) for row in kernels]
    made.alone_ms = sum(times) * 1e-6

    def mean(counter: str) -> float:
        values = [number(row[f"{counter}.avg.pct_of_peak_sustained_elapsed"]) for row in kernels]
        return sum(t * v for t, v in zip(times, values, strict=True)) / sum(times)

    made.tensor, made.fma, made.dram, made.issue = map(mean, COUNTERS)
    longest = kernels[times.index(max(times))]
    found = {match[1]: number(longest[name]) for name in longest if (match := STALL.search(name))}
    made.stalls = dict(sorted(found.items(), key=lambda item: -item[1])[:3])


def number(text: str) -> float:
    """A value of the table: digits may be grouped by commas."""
    return float(text.replace(",", "") or 0)


def show(made: Profile) -> None:
    stalls = ", ".join(f"{name} {value:.2f}" for name, value in made.stalls.items())
    print(
        f"{made.work:42} {made.contender:14} steady {made.steady_ms:7.4f} ms {made.mhz:5.0f} MHz "
        f"{made.watts:4.0f} W; alone {made.alone_ms:7.4f} ms, tensor {made.tensor:5.1f} %, "
        f"FMA {made.fma:5.1f} %, "
        f"DRAM {made.dram:5.1f} %, issue {made.issue:5.1f} %; {stalls}",
        flush=True,
    )


def main() -> None:
    """Print the table; optionally write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_profile")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--child", action="store_true", help="what runs under ncu")
    options = parser.parse_args()
    if options.child:
        run_between_separators(options.only)
        return
    made: list[Profile] = []
    for work, calls in all_calls(options.only):
        made += [steady(work, name, call) for name, call in calls.items()]
        time.sleep(0.5)  # every row begins as cool as the first
    torch().cuda.empty_cache()
    for one, kernels in zip(made, profiled(options.only), strict=True):
        add_counters(one, kernels)
        show(one)
    if options.json:
        device = torch().cuda.get_device_name()
        report = {"device": device, "rows": [asdict(one) for one in made]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
