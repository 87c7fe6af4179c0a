"""What a launch promises to its kernel: how large numbers get, the grid's axes, and alignment.

Promises are checked here for each launch and are part of the specialisation; see `ir.core.Kernel`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from math import prod

from cubepy.frontend.facts import Facts
from cubepy.frontend.signature import Arg, ScalarArg, Signature, StructArg
from cubepy.ir.core import ALIGNMENT, NARROW_LIMIT, UNLIMITED
from cubepy.ir.types import i64
from cubepy.jit.arguments import Layout, Matcher
from cubepy.jit.grid import Dim3
from cubepy.targets import CHECKED_LIMIT, Target


def promised(
    signature: Signature, matcher: Matcher, facts: Facts, count: Dim3, alignment: int
) -> Signature:
    """The signature with what a launch of so many cubes promises, with rows that begin at multiples
    of `alignment` bytes."""
    units = prod(count) * prod(signature.cube_dim)
    return replace(
        signature,
        limit=limit_of(matcher, units),
        flat=count[1:] == (1, 1),
        aligned=aligned(matcher, facts.lined, alignment),
        small=small(matcher, signature.args),
        alignment=alignment,
    )


def limit_of(matcher: Matcher, units: int) -> int:
    """The least limit, of those that kernels are specialised on, that all numbers keep."""
    largest = max([units, *(n for layout, _ in matcher.tensors.values() for n in _numbers(layout))])
    return next((n for n in (NARROW_LIMIT, CHECKED_LIMIT) if largest <= n), UNLIMITED)


def _numbers(layout: Layout) -> Iterator[int]:
    """Extents, the size, strides, and how far elements lie apart; axes of extent 0 count as 1."""
    extents = [1 if n is None else max(n, 1) for n in layout.shape]
    strides = [abs(s) for s in layout.strides]
    yield prod(extents)
    yield sum(s * (n - 1) for s, n in zip(strides, extents, strict=True))
    yield from strides


def alignment_of(target: Target) -> int:
    """What lines of a target need their addresses to be multiples of, in bytes; CPUs need nothing,
    but write past the caches there."""
    return target.line_alignment or ALIGNMENT


def aligned(matcher: Matcher, names: Collection[str], alignment: int) -> frozenset[str]:
    """Those of the tensors whose rows begin at aligned addresses."""
    tensors = matcher.tensors
    return frozenset(n for n in names if n in tensors and tensors[n][0].begins_at(alignment))


def small(matcher: Matcher, args: tuple[tuple[str, Arg], ...]) -> frozenset[str]:
    """Those of the numbers of 64 bits that are small; of specifications, all."""
    found = (name for name, arg in _scalars(args) if arg.dtype is i64)
    return frozenset(n for n in found if is_small(matcher.scalars.get(n, 0)))


def is_small(value: int) -> bool:
    """Whether an integer is one of those that kernels are specialised on."""
    return 0 <= value <= NARROW_LIMIT


def _scalars(args: Iterable[tuple[str, Arg]]) -> Iterator[tuple[str, ScalarArg]]:
    for name, arg in args:
        if isinstance(arg, ScalarArg):
            yield name, arg
        elif isinstance(arg, StructArg):
            items = zip(arg.names, arg.items, strict=True)
            yield from _scalars((f"{name}.{n}", item) for n, item in items)
