"""Arrays of attention as tensor maps describe them: batches, heads, rows, elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.attention.problem import Sequences
from cubepy.kernels.attention.views import Views
from cubepy.kernels.matmul.problem import BOX_UNIT, has_boxes
from cubepy.lang.cuda import FAR_ROWS, TensorMap, tensor_map_ragged
from cubepy.lang.pipelines import ROW_BYTES, ROWS
from cubepy.record import dataclass

MOST_ROWS = 1 << 30
"""Rows that kernels count in 32 bits."""


@dataclass(frozen=True, slots=True)
class Boxed:
    """Queries, keys, values and results with four axes each.

    `shared`: how many neighbours among batches, and among heads, have their keys and values in
    common; those have so many fewer. `mask`: of scores, batches and heads as those of queries.
    `log`: of queries, with one element each.
    """

    q: Memory
    k: Memory
    v: Memory
    out: Memory
    shared: tuple[int, int]
    mask: Memory | None
    log: Memory | None = None

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Batches, heads, queries, keys."""
        batches, heads, queries, _ = self.q.shape
        return batches, heads, queries, self.k.shape[2]


def with_values(x: Boxed, first: int, count: int) -> Boxed:
    """Attention to `count` elements of the values from `first` on, with the logarithms if these are
    the first."""
    v, out = columns(x.v, first, count), columns(x.out, first, count)
    return replace(x, v=v, out=out, log=None if first else x.log)


def columns(x: Memory, first: int, count: int) -> Memory:
    """Some elements of each row."""
    address = x.address + first * x.strides[-1]
    return replace(x, address=address, shape=(*x.shape[:-1], count))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Neighbouring axes as one: its extent, the strides of all arrays, and of how many neighbours
    keys and values are the same."""

    extent: int
    strides: tuple[int, ...]
    shared: int


def boxed(views: Sequence[Memory], has_log: bool = False) -> Boxed | None:
    """Queries, keys, values, results, perhaps logarithms and perhaps a mask, whose axes before the
    last two are alike, with four axes; None where tensor maps cannot describe them."""
    joined = with_four_axes(views, (1, 2))
    if joined is None:
        return None
    (q, k, v, out, *rest), shared = joined
    log = rest.pop(0) if has_log else None
    found = Boxed(q, k, v, out, shared, rest[0] if rest else None, log)
    return found if is_near(found.extents) and all(map(has_boxes, (q, k, v, out))) else None


@dataclass(frozen=True, slots=True)
class BoxedGradients:
    """The operands of gradients with four axes each, see `Boxed`: `by_q`, `by_k` and `by_v` are the
    gradients."""

    q: Memory
    k: Memory
    v: Memory
    grad: Memory
    by_q: Memory
    result: Memory
    log: Memory
    by_k: Memory
    by_v: Memory
    mask: Memory | None
    shared: tuple[int, int]

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Batches, heads, queries, keys."""
        batches, heads, queries, _ = self.q.shape
        return batches, heads, queries, self.k.shape[2]


def boxed_gradients(x: Views, by_k: Memory, by_v: Memory) -> BoxedGradients | None:
    """The operands of gradients, of which `by_k` and `by_v` stand still where keys are shared; None
    where queries were broadcast, or tensor maps cannot describe them."""
    q, grad = x.rows
    by_q = x.outs[0]
    if by_q.shape != q.shape:
        return None
    joined = with_four_axes(
        (q, *x.keys, grad, by_q, x.result, x.logs, by_k, by_v, *x.masks), of_keys=(1, 2, 7, 8)
    )
    if joined is None:
        return None
    q, k, v, grad, by_q, result, log, by_k, by_v, *masks = joined[0]
    mask = masks[0] if masks else None
    found = BoxedGradients(q, k, v, grad, by_q, result, log, by_k, by_v, mask, joined[1])
    described = all(map(has_boxes, (q, k, v, grad, by_q, result, by_k, by_v)))
    return found if is_near(found.extents) and described else None


def with_four_axes(
    views: Sequence[Memory], of_keys: Sequence[int]
) -> tuple[list[Memory], tuple[int, int]] | None:
    """Arrays whose axes before the last two are alike as batches and heads, and how many neighbours
    of each have those in common whose numbers are `of_keys`."""
    lead = [n for n in range(len(views[0].shape) - 2) if views[0].shape[n] > 1]
    for cut in range(len(lead) + 1):
        batches = _joined(views, lead[:cut], of_keys)
        heads = _joined(views, lead[cut:], of_keys)
        if batches is not None and heads is not None:
            found = [_with_axes(x, n, n in of_keys, batches, heads) for n, x in enumerate(views)]
            return found, (batches.shared, heads.shared)
    return None


def is_near(extents: tuple[int, int, int, int]) -> bool:
    """Whether kernels can count rows."""
    return max(*extents, prod(extents[:3])) <= MOST_ROWS


def _joined(views: Sequence[Memory], axes: Sequence[int], of_keys: Sequence[int]) -> _Axis | None:
    """Axes as one, if all arrays step evenly through it, keys and values over so many first."""
    if not axes:
        return _Axis(1, (0,) * len(views), 1)
    extents = [views[0].shape[n] for n in axes]
    found: list[int] = []
    inner = _still(views[of_keys[0]], axes)
    if any(inner != _still(views[n], axes) for n in of_keys[1:]):
        return None
    for number, x in enumerate(views):
        ends = len(axes) - inner if number in of_keys else len(axes)
        strides = [x.strides[n] for n in axes[:ends]]
        for a in range(ends - 1):
            if strides[a] != strides[a + 1] * extents[a + 1]:
                return None
        found.append(strides[-1] if strides else 0)
    return _Axis(prod(extents), tuple(found), prod(extents[len(axes) - inner :]))


def _still(x: Memory, axes: Sequence[int]) -> int:
    """How many of the last axes do not step."""
    steps = [k for k, n in enumerate(axes) if x.strides[n] != 0]
    return len(axes) - 1 - steps[-1] if steps else len(axes)


def _with_axes(x: Memory, number: int, is_of_keys: bool, batches: _Axis, heads: _Axis) -> Memory:
    shape: list[int] = []
    strides: list[int] = []
    for axis in (batches, heads):
        shape.append(axis.extent // (axis.shared if is_of_keys else 1))
        strides.append(axis.strides[number])
    shape += x.shape[-2:]
    strides += x.strides[-2:]
    # An axis of one element may have any stride.
    steps = [s if n > 1 else BOX_UNIT for n, s in zip(shape[:3], strides[:3], strict=True)]
    return replace(x, shape=tuple(shape), strides=(*steps, strides[3]))


def gathered(x: Boxed) -> Boxed:
    """A few queries of neighbouring heads with the same keys as the queries of one head, if their
    rows are evenly apart: so a step of keys serves them together."""
    batches, heads, queries, _ = x.extents
    group = x.shared[1]
    rows = (x.q, x.out) if x.log is None else (x.q, x.out, x.log)
    even = all(m.strides[1] == queries * m.strides[2] for m in rows)
    if x.mask is not None or group == 1 or group * queries > ROWS or (queries > 1 and not even):
        return x

    def regrouped(m: Memory) -> Memory:
        step = m.strides[2] if queries > 1 else m.strides[1]
        shape = (batches, heads // group, group * queries, m.shape[3])
        outer = m.strides[1] * group if heads > group else BOX_UNIT
        return replace(m, shape=shape, strides=(m.strides[0], outer, step, m.strides[3]))

    log = None if x.log is None else regrouped(x.log)
    return replace(x, q=regrouped(x.q), out=regrouped(x.out), log=log, shared=(x.shared[0], 1))


# Sequences of different lengths


@dataclass(frozen=True, slots=True)
class BoxedSequences:
    """Queries, keys, values and results as [tokens, heads, elements]; pages follow each other."""

    q: Memory
    k: Memory
    v: Memory
    out: Memory
    form: Sequences


def boxed_sequences(q: Memory, k: Memory, v: Memory, out: Memory) -> BoxedSequences | None:
    """Arrays of sequences or pages as ragged tensor maps describe them; None where they cannot."""
    page = k.shape[1] if len(k.shape) == 4 else 0
    group = q.shape[-2] // k.shape[-2]
    found = [_as_tokens(x) for x in (q, k, v, out)]
    rows = [x for x in found if x is not None and has_boxes(x) and x.shape[0] < FAR_ROWS // 2]
    if len(rows) < len(found):
        return None
    form = Sequences(group, group if ROWS % group == 0 else 1, page)
    return BoxedSequences(rows[0], rows[1], rows[2], rows[3], form)


LEAST_ROWS = 8
"""Rows of shared memory after which the swizzle repeats, so that a box begins there."""


def _as_tokens(x: Memory) -> Memory | None:
    """The first two of four axes as one, if rows are evenly apart."""
    if len(x.shape) == 3:
        return x
    outer, inner, *others = x.shape
    if outer > 1 and x.strides[0] != inner * x.strides[1]:
        return None
    return replace(x, shape=(outer * inner, *others), strides=x.strides[1:])


def ragged_pieces(x: Memory, rows: int, heads: int) -> TensorMap:
    """A ragged tensor map of rows of 128 bytes of some heads."""
    return tensor_map_ragged(x, (rows, heads, ROW_BYTES // x.dtype.itemsize), swizzle=ROW_BYTES)
