"""`sorted` of numbers whose count is known: a network of comparisons, without branches."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from cubepy.frontend.attributes import node_here
from cubepy.frontend.calls import call
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.expressions import select
from cubepy.frontend.intrinsics import common
from cubepy.frontend.running import comptime_result
from cubepy.frontend.sequences import items_of_call
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime
from cubepy.ir import ops

MOST = 256
"""Numbers that are sorted in registers: some 4,000 comparisons."""


@intrinsic(builtins.sorted)
def _sorted(frame: Frame, sequence: Any, *, key: Any = None, reverse: Any = False) -> Any:
    """The numbers of a sequence in their common type, the least first, as a tuple; lines are sorted
    lane by lane. Equal numbers, as 0.0 and -0.0, come in any order, and so do all beside NaN."""
    hint = "call cp.kernels.sort outside the kernel, or sort the elements of a few places"
    items = items_of_call(frame, sequence, "sorted", hint)
    if is_comptime((items, key, reverse)):
        return tuple(comptime_result(frame, sorted, items, key=key, reverse=reverse))
    if key is not None and len(items) <= MOST:
        node = node_here(frame)
        keys = [call(frame, node, key, [item], {}) for item in items]
        if is_comptime((keys, reverse)):
            order = range(len(items))
            chosen = comptime_result(frame, sorted, order, key=keys.__getitem__, reverse=reverse)
            return tuple([items[k] for k in chosen])
    if key is not None or not is_comptime(reverse):
        is_reverse = key is None or not is_comptime(reverse)
        what = f"what sorted() with `{'reverse' if is_reverse else 'key'}` takes"
        raise frame.tracer.error("E112", what=what, hint="sort numbers alone, the least first")
    if len(items) > MOST:
        raise frame.tracer.error("E120", count=len(items), limit=MOST)
    values = common(frame, items, "sorted")
    for low, high in exchanges(len(values)):
        a, b = values[low], values[high]
        swaps = frame.tracer.b.emit(ops.LT, b, a)
        values[low], values[high] = select(frame, swaps, b, a), select(frame, swaps, a, b)
    return tuple(reversed(values) if reverse else values)


def exchanges(count: int) -> Iterator[tuple[int, int]]:
    """The pairs of places that are compared in turn, so that any `count` numbers end up sorted.

    Batcher's merge exchange: Knuth, "The Art of Computer Programming", volume 3, 5.2.2M.
    """
    top = 1 << max(0, (count - 1).bit_length() - 1)
    part = top if count > 1 else 0
    while part:
        step, rest, distance = top, 0, part
        while True:
            for k in range(count - distance):
                if k & part == rest:
                    yield k, k + distance
            if step == part:
                break
            distance, step, rest = step - part, step >> 1, part
        part >>= 1
