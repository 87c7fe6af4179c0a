"""Random problems for the kernels of Hopper: `python -m tests.devices.random_problems`.

Each is made from a seed, runs on `cuda:0` and is compared with f64. What fails is printed with its
seed, from which `--start SEED --count 1` makes it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.devices import test_attention_grad_on_hopper as gradients
from tests.devices import test_attention_on_hopper as attention
from tests.devices import test_gathered_convolution as convolution
from tests.devices import test_matmul_on_gpus as tiles
from tests.devices import test_pipelined_matmul as pipelined
from tests.devices import test_sequences_on_hopper as sequences
from tests.devices import test_skinny_matmul as skinny
from tests.devices import test_small_hopper_kernels as small

DEVICE = "cuda:0"
Random = np.random.Generator


def extent(rng: Random, most: int) -> int:
    """Often a multiple of eight or near one, more often small than large."""
    n = int(2 ** rng.uniform(0, np.log2(most)))
    return max(1, n // 8 * 8 + int(rng.choice([0, 0, 0, 1, -1]))) if rng.random() < 0.8 else n


def flag(rng: Random) -> bool:
    return bool(rng.random() < 0.5)


def stack(rng: Random, most: int = 4) -> tuple[int, ...]:
    """The leading extents of a stack of matrices, mostly none."""
    return tuple(int(n) for n in rng.integers(1, most, rng.choice([0, 0, 1, 2])))


def multiply(rng: Random) -> None:
    extents = extent(rng, 700), extent(rng, 700), extent(rng, 1500)
    epilogue = pipelined.relu if flag(rng) else None
    options: Any = {"dense": (flag(rng), flag(rng)), "batch": stack(rng), "bias": flag(rng)}
    pipelined.check(DEVICE, extents, epilogue=epilogue, dtype=kind(rng), **options)


def multiply_few_rows(rng: Random) -> None:
    extents = int(rng.integers(1, 65)), extent(rng, 5000), extent(rng, 5000)
    options: Any = {"turned": flag(rng), "bias": flag(rng), "batch": stack(rng, 3)}
    dtype = str(rng.choice(["bf16", "f16", "f32"]))
    skinny.check(DEVICE, extents, dtype=dtype, **options)


def multiply_exactly(rng: Random) -> None:
    extents = extent(rng, 700), extent(rng, 700), extent(rng, 1500)
    precision = str(rng.choice(["exact", "tf32"]))
    layout = str(rng.choice(["NN", "NT", "TN", "TT"]))
    tiles.product(DEVICE, extents, layout, "f4", None if precision == "exact" else precision)


def multiply_groups(rng: Random) -> None:
    m, count = extent(rng, 2000), int(rng.integers(1, 12))
    ends = np.sort(rng.integers(0, m + 20, count)).tolist()
    byte = rng.random() < 0.3
    dtype = ml_dtypes.float8_e4m3fn if byte else pipelined.DTYPES[kind(rng)][0]
    extents = m, 16 * int(rng.integers(1, 40)), 16 * int(rng.integers(1, 40))
    pipelined.check_groups(DEVICE, extents, ends, dtype, byte or flag(rng))


def attend(rng: Random) -> None:
    shapes, options = attention_problem(rng)
    attention.check(DEVICE, *shapes, **options)


def differentiate_attention(rng: Random) -> None:
    shapes, options = attention_problem(rng)
    gradients.check(DEVICE, *shapes, **options)


def attention_problem(rng: Random) -> tuple[Any, Any]:
    """The shapes of queries and keys, and options."""
    heads = int(rng.choice([1, 2, 4]))
    shared = int(rng.choice([n for n in (1, 2, 4) if n <= heads]))
    size = int(rng.choice([64, 128, 64, 128, 8 * int(rng.integers(1, 33))]))
    queries, keys = extent(rng, 700), extent(rng, 900)
    options: Any = {"causal": flag(rng), "dtype": kind(rng)}
    if rng.random() < 0.2:
        options["mask"] = rng.random((queries, keys)) < 0.7
    if rng.random() < 0.3:
        options["window"] = extent(rng, 300), extent(rng, 300)
    return ((2, heads, queries, size), (2, shared, keys, size)), options


def attend_in_8_bits(rng: Random) -> None:
    heads = int(rng.choice([1, 2, 4]))
    shared = int(rng.choice([n for n in (1, 2, 4) if n <= heads]))
    size, width = 16 * int(rng.integers(1, 17)), 16 * int(rng.integers(1, 17))
    options: Any = {"causal": flag(rng), "dtype": str(rng.choice(list(attention.SMALL)))}
    options |= {"width": width, "kind": np.float16 if flag(rng) else np.float32}
    if rng.random() < 0.3:
        options["window"] = extent(rng, 300), extent(rng, 300)
    shapes = (2, heads, extent(rng, 700), size), (2, shared, extent(rng, 900), size)
    attention.check_small(DEVICE, *shapes, **options)


def attend_to_sequences(rng: Random) -> None:
    most = 5 if flag(rng) else 200
    keys = [extent(rng, 3000) if rng.random() < 0.9 else 0 for _ in range(rng.integers(1, 9))]
    queries = [int(rng.integers(0, most)) for _ in keys]
    own, size, options = int(rng.choice([1, 2, 3])), 8 * int(rng.integers(1, 33)), {}
    if flag(rng):
        options = {"causal": flag(rng), "window": (extent(rng, 900), extent(rng, 900))}
    if flag(rng):
        each = int(rng.integers(1, most))
        sequences.check_paged(DEVICE, keys, size, 8 << int(rng.integers(0, 5)), (each,), options)
    else:
        sizes = size, size, own * int(rng.choice([1, 2, 3, 4])), own
        sequences.check_ragged(DEVICE, (queries, keys), *sizes, kind(rng), options)


def convolve(rng: Random) -> None:
    window = tuple(int(n) for n in rng.integers(1, 5, 2))
    channels, filters = 8 * int(rng.integers(1, 20)), 8 * int(rng.integers(1, 20))
    high, wide = int(rng.integers(9, 30)), int(rng.integers(9, 30))
    padding = int(rng.integers(0, min(window) + 1))
    options: Any = {"padding": padding, "stride": int(rng.integers(1, 4)), "bias": flag(rng)}
    options |= {"dilation": int(rng.integers(1, 3)), "is_last": flag(rng), "epilogue": flag(rng)}
    shape = int(rng.integers(1, 5)), channels, high, wide
    convolution.check(DEVICE, shape, (filters, channels, *window), dtype=kind(rng), **options)


def reduce_rows(rng: Random) -> None:
    small.test_rows(DEVICE, (extent(rng, 300), extent(rng, 40000)))


def kind(rng: Random) -> str:
    return str(rng.choice(["bf16", "f16"]))


FAMILIES: tuple[Callable[[Random], None], ...] = (
    *(multiply, multiply_few_rows, multiply_exactly, multiply_groups),
    *(attend, attend_in_8_bits, attend_to_sequences, differentiate_attention),
    *(convolve, reduce_rows),
)


def run(seed: int) -> None:
    """One problem; raises where it is wrong."""
    modules = pipelined, skinny, attention, sequences, gradients, convolution, small
    for module in modules:
        vars(module)["RNG"] = np.random.default_rng(seed)
    FAMILIES[seed % len(FAMILIES)](np.random.default_rng(seed))


def main() -> int:
    """Run problems until the time is over; 1 if one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.devices.random_problems")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--step", type=int, default=1, help="between seeds, for several processes")
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    end, finds, ran = time.monotonic() + options.seconds, 0, 0
    while ran < options.count and time.monotonic() < end:
        seed = options.start + ran * options.step
        ran += 1
        try:
            run(seed)
        except Exception as error:
            finds += 1
            text = str(error).strip().splitlines()
            name = FAMILIES[seed % len(FAMILIES)].__name__
            said = f"{type(error).__name__} {text[0][:200] if text else ''}"
            print(f"seed {seed}, {name}: {said}", flush=True)
    print(f"{ran} problems ran from seed {options.start}: {finds} finds", flush=True)
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
