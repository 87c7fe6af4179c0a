"""Prebuilt kernels take no memory as large as an argument while they run."""

from collections.abc import Iterator
from functools import partial

from bench import peers
from bench.children.process import run_child
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "peak memory"
OPERATIONS = ("max_pool1d", "max_pool2d", "map", "sum", "max", "min", "mean", "prod")
LIMIT = 0.5  # of the argument; less than all of it, as pages that were there are not seen
ELEMENTS, SMALL = 16 << 20, 4 << 20  # smaller arguments vanish in the noise of the process


def rows() -> Iterator[Row]:
    """The prebuilt kernels that there are."""
    for operation in OPERATIONS:
        if peers.find_prebuilt(operation) is not None:
            yield Row(GROUP, operation, partial(_make, operation), unit="arguments", rounds=1)


def _make(operation: str, small: bool) -> Case:
    elements = SMALL if small else ELEMENTS
    threads = peers.all_cores()
    call = partial(run_child, "peak_memory", operation, str(elements), threads=threads)
    return Case([Contender(OURS, call, "out")], [Claim("share", "cubepy out", limit=LIMIT)])
