"""Attention of sequences of different lengths: `attention_ragged`, `attention_paged`."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod, sqrt
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.errors import fail
from cubepy.ir.types import DType, f32, i32, i64
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.attention.boxes import (
    LEAST_ROWS,
    BoxedSequences,
    boxed_sequences,
    columns,
    ragged_pieces,
)
from cubepy.kernels.attention.entry import SCALES
from cubepy.kernels.attention.on_cpus import attend_ragged_strips
from cubepy.kernels.attention.parts import join_sequences
from cubepy.kernels.attention.problem import Fragments, Problem, Squares, Strips, Warpgroups
from cubepy.kernels.attention.ragged import attend_ragged
from cubepy.kernels.attention.ragged_fragments import attend_ragged_fragments
from cubepy.kernels.attention.rows import FAR, slots
from cubepy.kernels.attention.squares import attend_ragged_squares
from cubepy.kernels.attention.strategies import (
    are_dealt,
    choose,
    fragments_of_sequences,
    heads_together,
    launches,
    warpgroups_of_sequences,
)
from cubepy.kernels.attention.views import result_of, result_type
from cubepy.kernels.attention.window import checked_window
from cubepy.kernels.calls.arguments import float_of, refused, wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.libraries import Shape
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.lang.pipelines import ROWS, WARPGROUP
from cubepy.record import dataclass

_RAGGED, _PAGED = Plans(), Plans()
Window = tuple[int | None, int | None] | None


def attention_ragged(
    q: Any,
    k: Any,
    v: Any,
    q_offsets: Any,
    k_offsets: Any = None,
    *,
    causal: bool = False,
    window: Window = None,
    scale: float | None = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Attention of sequences that lie behind each other, as FlashAttention's `varlen` functions.

    `q`: [tokens, heads, size], `k`: [key tokens, key heads, size], `v`: [key tokens, key heads,
    width]; `heads` is a multiple of `key heads`, of which each serves as many neighbours.
    `q_offsets`: i32 or i64, [sequences + 1], rising from 0 to `tokens`; sequence s has the tokens
    from `q_offsets[s]` to before `q_offsets[s + 1]`, less than 2**29. `k_offsets`: the same for
    keys; default those of the queries. The last query of a sequence stands at its last key: with
    `causal` a query sees none behind its own, and `window` counts keys before and behind that.
    `dtype`: of the result, as in `attention`. Gives [tokens, heads, width]; tokens beyond the last
    offset get no result. Offsets that do not rise from 0 to `tokens` do no harm on CPUs: sequences
    end at the last token, and those that begin elsewhere, or end before that, get no result. In
    checked mode what is read or written out of range raises `OutOfBoundsError`. On GPUs nothing
    looks at them. Precision, other arguments and errors are those of `attention`.
    """
    function = "attention_ragged"
    sides = bool(causal), checked_window(function, window)
    call_ = _Call(function, *sides, scale, result_type(function, dtype))
    arrays = (q, k, v, q_offsets, q_offsets if k_offsets is None else k_offsets)

    def make(planner: Planner, memories: list[Memory]) -> None:
        _plan(planner, call_, memories, (memories[3],), memories[4], ())

    names = ("q", "k", "v", "q_offsets", "k_offsets")
    return call(_RAGGED, function, names, arrays, call_.key, make, out)


def attention_paged(
    q: Any,
    k: Any,
    v: Any,
    block_table: Any,
    lengths: Any,
    *,
    q_offsets: Any = None,
    causal: bool = False,
    window: Window = None,
    scale: float | None = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Attention of sequences whose keys and values lie in pages, as caches of decoders have them.

    `k`: [pages, page, key heads, size], `v`: [pages, page, key heads, width]. `block_table`: i32 or
    i64, [sequences, most pages]; row s says which page has the first keys of sequence s, the next
    and so on. `lengths`: i32 or i64, [sequences], how many keys it has; entries of the table and
    keys behind those are not read. `q`: [sequences, queries, heads, size], or with `q_offsets`
    [tokens, heads, size] as in `attention_ragged`. A sequence with a length or pages out of range
    gets no result on CPUs. All else as in `attention_ragged`; the queries are the last of their
    sequence, whose keys are in the pages already.
    """
    function = "attention_paged"
    sides = bool(causal), checked_window(function, window)
    call_ = _Call(function, *sides, scale, result_type(function, dtype))
    arrays = (q, k, v, block_table, lengths, q_offsets)

    def make(planner: Planner, memories: list[Memory]) -> None:
        _plan(planner, call_, memories, tuple(memories[5:]), memories[4], (memories[3],))

    names = ("q", "k", "v", "block_table", "lengths", "q_offsets")
    return call(_PAGED, function, names, arrays, call_.key, make, out, optional=("q_offsets",))


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call says beside its arrays."""

    function: str
    causal: bool
    window: Window
    scale: float | None
    dtype: DType | None

    @property
    def key(self) -> tuple[bool, Window, float | None, DType | None]:
        """What plans depend on."""
        scale = None if self.scale is None else float_of(self.function, "scale", self.scale)
        return self.causal, self.window, scale, self.dtype

    @property
    def reach(self) -> tuple[int, ...]:
        """The keys before and behind its own that a query sees; nothing where it sees all."""
        before, behind = (FAR if n is None else min(n, FAR) for n in self.window or (None, None))
        behind = 0 if self.causal else behind
        return () if before == behind == FAR else (before, behind)


def _plan(
    planner: Planner,
    call_: _Call,
    arrays: list[Memory],
    starts: tuple[Memory, ...],
    ends: Memory,
    tables: tuple[Memory, ...],
) -> None:
    q, k, v = arrays[:3]
    sequences = _check(call_.function, (q, k, v), starts, ends, tables)
    kind = call_.dtype or result_of(q.dtype)
    result = planner.result(Shape((*q.shape[:-1], v.shape[-1]), kind))
    if 0 in result.shape or sequences == 0:
        return
    tokens, heads = _tokens(q), q.shape[-2]
    keys = tables[0].shape[1] * k.shape[1] if tables else -(-k.shape[0] // sequences)
    queries = q.shape[1] if not starts else -(-tokens // sequences)
    dtype = q.dtype if q.dtype.bits >= 32 else f32
    scale = call_.scale if call_.scale is not None else 1 / sqrt(q.shape[-1] or 1)
    sizes = queries, keys, q.shape[-1], v.shape[-1]
    p = Problem(sequences * heads, *sizes, dtype, False, result=kind)
    marks, reach = (starts, ends, tables), call_.reach
    boxes = boxed_sequences(q, k, v, result) if SCALES[0] <= scale <= SCALES[1] else None
    if boxes is not None:
        packed, count = boxes.form.packed, (tokens, queries, sequences, keys)
        tiled = replace(p, heads=p.heads // packed, queries=queries * packed, elements=q.dtype)
        is_by_boxes = boxes.form.page % LEAST_ROWS == 0
        parts = launches(planner.target, tiled, warpgroups_of_sequences) if is_by_boxes else []
        for first, x, wide in parts:
            v, out = (columns(m, first, x.width) for m in (boxes.v, boxes.out))
            own = replace(boxes, v=v, out=out)
            _launch_boxes(planner, own, wide, count, marks, reach, scale)
        if parts:
            return
        blocks = fragments_of_sequences(planner.target, tiled, not starts)
        if blocks is not None and keys:  # of a table without pages no entry can be read
            _launch_fragments(planner, boxes, blocks, count, marks, reach, scale)
            return
    if not starts and queries == 1 and reach in ((), (FAR, 0)):
        queries, reach = heads_together(planner.target, p.heads, heads // k.shape[-2]), ()
        q, result = (_with_queries(m, queries) for m in (q, result))
        heads //= queries
        p = replace(p, heads=sequences * heads, queries=queries)
    t = choose(planner.target, p)
    common = {"q": q, "k": k, "v": v, "out": result, "marks": marks, "window": reach}
    common |= {"scale": float(scale), "t": t, "is_guarded": not get("checked")}
    bands = slots(tokens, sequences, t.height) if starts else sequences * -(-queries // t.height)
    if isinstance(t, Strips):
        planner.launch(attend_ragged_strips, heads * bands, **common)
    elif isinstance(t, Squares):
        cubes = heads * bands * -(-p.width // t.width)
        planner.launch(
            attend_ragged_squares, Fixed((cubes, 1, 1), (t.side * t.side, 1, 1)), **common
        )


def _with_queries(x: Memory, rows: int) -> Memory:
    """Neighbouring heads of one query each as heads of so many: [sequences, 1, heads, size] as
    [sequences, rows, heads / rows, size]."""
    sequences, _, heads, size = x.shape
    outer, _, step, inner = x.strides
    shape = sequences, rows, heads // rows, size
    return replace(x, shape=shape, strides=(outer, step, rows * step, inner))


def _launch_boxes(
    planner: Planner,
    boxes: BoxedSequences,
    t: Warpgroups,
    extents: tuple[int, int, int, int],
    marks: tuple[tuple[Memory, ...], Memory, tuple[Memory, ...]],
    window: tuple[int, ...],
    scale: float,
) -> None:
    """One cube for each multiprocessor, if there are as many tiles or parts. `extents`: tokens,
    queries and sequences, and keys at most."""
    form, d = boxes.form, _dealt(planner, boxes, t, extents, marks[0])
    cubes = min(planner.target.multiprocessors, d.cubes)
    rows = gcd(form.page, t.keys) if form.page else t.keys
    planner.launch(
        attend_ragged,
        Fixed((cubes, 1, 1), ((t.consumers + 1) * WARPGROUP, 1, 1)),
        q=ragged_pieces(boxes.q, d.height, form.packed),
        k=ragged_pieces(boxes.k, rows, 1),
        v=ragged_pieces(boxes.v, rows, 1),
        out=ragged_pieces(boxes.out, ROWS // form.packed, form.packed),
        wide=() if t.result_pieces else (boxes.out,),
        **_common(d, marks, window, scale),
        t=replace(t, is_split=len(d.parts) > 0),
        r=form,
    )
    _join(planner, boxes, d, marks[0])


def _launch_fragments(
    planner: Planner,
    boxes: BoxedSequences,
    t: Fragments,
    extents: tuple[int, int, int, int],
    marks: tuple[tuple[Memory, ...], Memory, tuple[Memory, ...]],
    window: tuple[int, ...],
    scale: float,
) -> None:
    """A cube for each tile or share of the steps; `extents` as above."""
    d = _dealt(planner, boxes, t, extents, marks[0])
    planner.launch(
        attend_ragged_fragments,
        Fixed((d.cubes, 1, 1), (t.units, 1, 1)),
        q=boxes.q,
        k=boxes.k,
        v=boxes.v,
        out=boxes.out,
        **_common(d, marks, window, scale),
        t=replace(t, is_split=len(d.parts) > 0),
        r=boxes.form,
    )
    _join(planner, boxes, d, marks[0])


@dataclass(frozen=True, slots=True)
class _Dealt:
    """How tiles are dealt out: `height` tokens each, slots, heads over those that are packed and
    queries of a sequence; how many cubes; and where steps are dealt out, memory for results over
    parts, for their sizes, and for the makers of tiles."""

    height: int
    extents: tuple[int, int, int]
    cubes: int
    parts: tuple[Memory, ...]


def _common(
    d: _Dealt,
    marks: tuple[tuple[Memory, ...], Memory, tuple[Memory, ...]],
    window: tuple[int, ...],
    scale: float,
) -> dict[str, Any]:
    """What both kernels of tiles take alike."""
    reach = tuple(map(np.int32, window))
    common = {"marks": marks, "parts": d.parts, "extents": d.extents}
    return {**common, "window": reach, "scale": scale}


def _dealt(
    planner: Planner,
    boxes: BoxedSequences,
    t: Warpgroups | Fragments,
    extents: tuple[int, int, int, int],
    starts: tuple[Memory, ...],
) -> _Dealt:
    """`extents`: tokens, queries and sequences, and keys at most."""
    form, (tokens, queries, sequences, keys) = boxes.form, extents
    steps, cores = -(-keys // t.keys), planner.target.multiprocessors
    height, heads = t.height // form.packed, boxes.q.shape[1] // form.packed
    bands = slots(tokens, sequences, height) if starts else sequences * -(-queries // height)
    tall = queries * form.packed
    if not are_dealt(planner.target, bands, heads, tall, steps, t.height):
        return _Dealt(height, (bands, heads, queries), bands * heads, ())
    cubes = min(cores // heads, bands * steps) * heads
    shape = 2 * cubes, 1, t.height
    parts = planner.scratch((*shape, t.width), f32), planner.scratch((*shape, 2), f32)
    makers = planner.scratch((bands * heads, 2), i32)
    return _Dealt(height, (bands, heads, queries), cubes, (*parts, makers))


def _join(planner: Planner, boxes: BoxedSequences, d: _Dealt, starts: tuple[Memory, ...]) -> None:
    """Make results of parts, if there are any."""
    if d.parts:
        planner.launch(
            join_sequences,
            Over(prod(boxes.out.shape[:2]), "plane", None),
            results=d.parts[0],
            sizes=d.parts[1],
            makers=d.parts[2],
            out=boxes.out,
            starts=starts,
            queries=d.extents[2],
            packed=boxes.form.packed,
            height=d.height,
        )


def _tokens(q: Memory) -> int:
    return q.shape[0] if len(q.shape) == 3 else q.shape[0] * q.shape[1]


def _check(
    function: str,
    arrays: tuple[Memory, Memory, Memory],
    starts: tuple[Memory, ...],
    ends: Memory,
    tables: tuple[Memory, ...],
) -> int:
    """How many sequences there are, once all arrays are what they should be."""
    q, k, v = arrays
    if not q.dtype.is_float:
        raise refused(function, "q", f"has dtype {q.dtype}", "convert it to a float")
    if k.dtype is not q.dtype or v.dtype is not q.dtype:
        reason = f"`q` is {q.dtype}, `k` is {k.dtype}, `v` is {v.dtype}"
        raise fail("E602", function=function, reason=reason, suggestion="convert to one dtype")
    for name, marks in (("offsets or lengths", (*starts, ends)), ("block_table", tables)):
        for m in marks:
            if m.dtype not in (i32, i64):
                raise refused(function, name, f"has dtype {m.dtype}", "it is i32 or i64")
    shown = f"`q` has shape {q.shape}, `k` {k.shape} and `v` {v.shape}"
    axes = 4 if tables else 3
    if len(q.shape) != (3 if starts else 4) or len(k.shape) != axes or len(v.shape) != axes:
        wanted = "[tokens, heads, size]" if starts else "[sequences, queries, heads, size]"
        pages = "[pages, page, heads, size]" if tables else "[tokens, heads, size]"
        raise wrong(function, shown, f"`q` is {wanted}, `k` and `v` are {pages}")
    if q.shape[-1] != k.shape[-1]:
        raise wrong(function, shown, "the last axes of `q` and `k` are equally long")
    if k.shape[:-1] != v.shape[:-1]:
        raise wrong(function, shown, "`k` and `v` have equally many keys and heads")
    if k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        raise wrong(function, shown, "the heads of `q` are a multiple of those of `k` and `v`")
    if tables and k.shape[1] == 0:
        raise wrong(function, shown, "a page has one key at least")
    return _sequences(function, q, starts, ends, tables)


def _sequences(
    function: str,
    q: Memory,
    starts: tuple[Memory, ...],
    ends: Memory,
    tables: tuple[Memory, ...],
) -> int:
    """How many sequences offsets, lengths and tables have; E601 unless all have as many."""
    shapes = [m.shape for m in (*starts, ends, *tables)]
    if [len(s) for s in shapes] == [1] * len(starts) + [1] + [2] * len(tables):
        counts = {m.shape[0] - 1 for m in starts} | {m.shape[0] for m in tables}
        counts |= {ends.shape[0] if tables else ends.shape[0] - 1}
        counts |= set() if starts else {q.shape[0]}
        if len(counts) == 1 and min(counts) >= 0:
            return min(counts)
    reason = "offsets, lengths and table have the shapes " + ", ".join(map(str, shapes))
    raise wrong(function, reason, "offsets have one more element than there are sequences")
