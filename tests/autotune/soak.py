"""Long checks of searches: `python -m tests.autotune.soak inputs | wrong [N] [DEVICE]`.

`inputs`: N searches (100) of functions that update an argument in place or add to it; all arguments
are bit-identical afterwards. `wrong`: N searches (50) among candidates of which some are faster and
wrong; none of these is picked. Sizes, types and what is wrong are drawn anew by each number.
"""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.autotune.records import forgotten

BUDGET_S = 2.0
TYPES = ("f4", "f8", "i4", "u1", "f2")


@cp.cube
def add_some(x, out, n: cp.Comptime, share: cp.Comptime, times: cp.Comptime):
    """Adds to the first of every `share` elements, over and over."""
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size // share:
            for _ in range(times):
                out.flat[i + k] = out.flat[i + k] + x.flat[i + k]


@cp.autotuned(space={"n": (1, 2, 4, 8)})
def add(x, out, *, config):
    add_some.over(-(-out.shape[0] // config["n"]))(x, out, config["n"], 1, 1)


@cp.autotuned(space={"n": (1, 4), "share": (1, 2, 64)})
def add_part(x, out, *, config):
    """The less of the elements, the faster: those that leave some out are wrong."""
    n, share = config["n"], config["share"]
    add_some.over(-(-out.shape[0] // (n * share)))(x, out, n, share, 50)


def arrays(rng: random.Random, device: str, low: int, high: int) -> list[Any]:
    """Two arrays of one type and size."""
    size, dtype = round(low * (high / low) ** rng.random()), rng.choice(TYPES)
    make = np.random.default_rng(rng.randrange(1 << 30))
    hosts = [(1 + make.random(size) * 3).astype(dtype) for _ in range(2)]
    return [x if device == "cpu" else cp.asarray(x, device=device) for x in hosts]


def content(x: Any) -> bytes:
    """The bytes of an array."""
    return (x if isinstance(x, np.ndarray) else x.numpy()).tobytes()


def inputs(number: int, device: str) -> bool:
    """Whether the arguments of a search are as they were."""
    x, out = arrays(random.Random(number), device, 1, 100_000)
    out = x if number % 2 else out
    before = content(x), content(out)
    add.pick(x, out)
    return before == (content(x), content(out))


def wrong(number: int, device: str) -> bool:
    """Whether the pick of a search is right."""
    x, out = arrays(random.Random(number), device, 4_000, 1_000_000)
    return add_part.pick(x, out)["share"] == 1


CHECKS = {"inputs": (inputs, 100), "wrong": (wrong, 50)}


def main() -> None:
    """Print how many searches were as they should be; exit with 1 unless all were."""
    check, default = CHECKS[sys.argv[1]]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else default
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    passed = 0
    for number in range(count):
        with (
            tempfile.TemporaryDirectory() as folder,
            forgotten(),
            cp.settings(cache=True, cache_dir=folder),
            cp.tuning(level="quick", budget_s=BUDGET_S),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)  # which names the wrong ones
            passed += check(number, device)
    print(f"{sys.argv[1]} on {device}: {passed} of {count}")
    raise SystemExit(passed != count)


if __name__ == "__main__":
    main()
