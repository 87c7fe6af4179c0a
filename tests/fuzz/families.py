"""The families of generated kernels: how a run of seeds of each is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cubepy as cp
from tests.fuzz import differential, units_as_lanes
from tests.fuzz.differential import (
    check,
    check_barriers,
    check_barriers_device,
    check_device,
    generate,
    generate_for,
    generate_wide,
)
from tests.fuzz.flow import oracle as flow
from tests.fuzz.generator import Program
from tests.fuzz.typed import oracle

UNOPTIMISED = 8
"""One kernel of so many is also compiled without optimisation, and with more than usual."""


class Ran(NamedTuple):
    """How many kernels ran, and of how many of them the units became lanes, where that counts."""

    ran: int
    lanes: int = 0


@dataclass(frozen=True)
class Family:
    """`check` raises for a run of seeds that share a launch; it gives how many of them ran."""

    share: int
    """Of a hundred seeds of a soak."""
    batch: int
    """Seeds that share a launch."""
    check: Callable[[Sequence[int], str | None], Ran]


def _levels(seed: int) -> tuple[int, ...]:
    return (2,) if seed % UNOPTIMISED else (0, 2, 3)


def _differential(make: Callable[[int], Program], wide: bool) -> Callable[..., Ran]:
    """The interpreter against LLVM, or against a device."""

    def run(seeds: Sequence[int], device: str | None) -> Ran:
        ran = 0
        for seed in seeds:
            if device is None:
                check(make(seed), seed, _levels(seed))
                ran += 1
            else:
                program = generate_for(seed, cp.device(device).target, wide)
                ran += check_device(program, seed, device)
        return Ran(ran)

    return run


def _barriers(seeds: Sequence[int], device: str | None) -> Ran:
    """Kernels with barriers of units against their twins without."""
    if device is not None:
        return Ran(sum(check_barriers_device(seed, device) for seed in seeds))
    for seed in seeds:
        check_barriers(seed, _levels(seed))
    return Ran(len(seeds))


def _typed(seeds: Sequence[int], device: str | None) -> Ran:
    """The model against the interpreter and LLVM, or against a device."""
    if device is not None:
        has_f64 = differential.has_f64(cp.device(device).target)
        return Ran(oracle.check_device(seeds, device, has_f64))
    oracle.check(seeds, ("interpreter", "cpu", oracle.LANES))
    if seeds[0] // oracle.BATCH % UNOPTIMISED == 0:
        with cp.settings(opt_level=0):
            oracle.check(seeds, ("cpu",))
    return Ran(len(seeds))


def _flow(seeds: Sequence[int], device: str | None) -> Ran:
    """Python itself against the interpreter and LLVM, or against a device or PTX."""
    if device is not None:
        has_f64 = device == flow.PTX or differential.has_f64(cp.device(device).target)
        return Ran(sum(flow.check_device(seed, device, has_f64) for seed in seeds))
    for seed in seeds:
        flow.check(seed, ("interpreter", *flow.WAYS))
    return Ran(len(seeds))


def _lanes(seeds: Sequence[int], device: str | None) -> Ran:
    """Units as lanes against units one by one, on this machine's CPU."""
    if device is not None:
        return Ran(0)
    return Ran(len(seeds), sum(map(units_as_lanes.check, seeds)))


FAMILIES: dict[str, Family] = {
    "typed": Family(44, oracle.BATCH, _typed),
    "flow": Family(6, 1, _flow),
    "barriers": Family(5, 1, _barriers),
    "wide": Family(25, 1, _differential(generate_wide, True)),
    "lanes": Family(10, 1, _lanes),
    "classic": Family(10, 1, _differential(generate, False)),
}


def batches(name: str, start: int, count: int) -> Iterator[range]:
    """The runs of seeds that share a launch; they begin at multiples of the batch."""
    size, end = FAMILIES[name].batch, start + count
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield range(start, stop)
        start = stop
