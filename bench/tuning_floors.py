"""`python -m bench.tuning_floors [--device cuda:0]`: products and convolutions that have floors,
with tuning on beside what rules choose.

Each is called under `cp.tuning(level="quick")` until nothing is left to be tried; then what the
rule chooses and what was picked are timed in turns, in one process. On a CPU these are the rows of
`python -m bench`, on a GPU those of `bench.gpu_matmul` and `bench.gpu_convolution`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import cubepy as cp
from bench.tuning import Call, found_so_far, measure, own_store, quick_search

GROUPS = ("matmul", "conv2d")


def cases(device: str, only: Sequence[str]) -> Iterator[tuple[str, Call]]:
    """Calls of prebuilt functions by name, each with arrays of its own."""
    yield from _on_gpu(only) if device != "cpu" else _on_cpu(only)


def _is_wanted(name: str, only: Sequence[str]) -> bool:
    return any(part in name for part in only)


def _on_cpu(only: Sequence[str]) -> Iterator[tuple[str, Call]]:
    from bench.suite import OURS, all_rows

    for row in all_rows():
        if row.group in GROUPS and _is_wanted(row.name, only):
            calls = [c.call for c in row.make(False).contenders if c.who == OURS]
            yield row.name, calls[0]


def _on_gpu(only: Sequence[str]) -> Iterator[tuple[str, Call]]:
    from bench import gpu_convolution, gpu_matmul

    for work in gpu_matmul.all_work():
        name = f"matmul/{work}"
        if _is_wanted(name, only) and work.group in ("square", "prefill", "odd", "f32"):
            yield name, _product(work)
    for layer in gpu_convolution.LAYERS:
        name = f"conv2d/{layer}"
        if _is_wanted(name, only):
            yield name, _convolution(layer)


def _product(work: Any) -> Call:
    from bench.gpu_matmul import factors

    a, b = factors(work)
    return lambda: cp.kernels.matmul(a, b, precision=work.precision)


def _convolution(layer: Any) -> Call:
    import torch

    from bench.tuning import _tensor

    last = {"memory_format": torch.channels_last}
    x = _tensor(layer.batch, layer.channels, layer.side, layer.side).to(**last)
    w = _tensor(layer.filters, layer.channels, layer.window, layer.window).to(**last)
    return lambda: cp.kernels.conv2d(x, w, stride=layer.stride, padding=layer.padding)


def gain_of(call: Call, device: str) -> tuple[float, float]:
    """How many times as fast a call is with tuning on, and the spread of what the rule chose: the
    upper quartile of its samples over the lower one."""
    call()
    quick_search(call, None)
    picked = {key: found.config for key, found in found_so_far().items()}
    sets = {"rule": dict.fromkeys(picked, "default"), "pick": picked}
    times = measure(call, sets, device)
    low, middle, high = statistics.quantiles(times["rule"], n=4)
    return middle / statistics.median(times["pick"]), high / low


def main() -> None:
    """Print a line for each row, and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose name has one of these")
    given = parser.parse_args()
    gains: dict[str, list[float]] = {}
    with own_store():
        for name, call in cases(given.device, given.only):
            gain, spread = gain_of(call, given.device)
            gains.setdefault(name.partition("/")[0], []).append(gain)
            print(f"{name:48} {gain:.3f} x the rule's (spread {spread:.3f})", flush=True)
    for group, found in gains.items():
        mean = statistics.geometric_mean(found)
        print(f"{group}: {mean:.3f} (geometric), least {min(found):.3f}, of {len(found)} rows")


if __name__ == "__main__":
    main()
