"""Ragged and paged attention against each sequence by itself, in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.attention.rows import slots
from tests.kernels.test_attention import EPS, attended, check, dtype_of

LENGTHS = ((5, 0, 70, 1, 33), (40, 12, 3, 0, 90))
"""Of the queries and of the keys of some sequences."""


def offsets(lengths: Any, dtype: str = "i4") -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(dtype)


def of_sequence(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, window: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The result of one sequence, [tokens, heads, width], and how far one may be from it."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.swapaxes(0, 1), *(np.repeat(x.swapaxes(0, 1), group, 0) for x in (k, v))
    shift = k.shape[1] - q.shape[1]
    place = np.arange(q.shape[1])[:, None] + shift - np.arange(k.shape[1])
    before, behind = window or (None, None)
    sees = np.ones(place.shape, bool)
    if before is not None:
        sees &= place <= before
    if behind is not None:
        sees &= -place <= behind
    if causal:
        sees &= place >= 0
    found, bound = attended(q, k, v, sees, False, EPS["f4"])
    return found.swapaxes(0, 1), bound.swapaxes(0, 1)


def pages_of(rows: np.ndarray, lengths: Any, page: int, draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows in shuffled pages whose other rows are NaN, and the table, whose other entries are
    beyond all pages."""
    counts = [-(-n // page) for n in lengths]
    order = draw.numbers.permutation(sum(counts) + 2)
    pool = np.full((len(order), page, *rows.shape[1:]), np.nan, rows.dtype)
    table = np.full((len(lengths), max(counts) + 1), 1 << 20, np.int32)
    taken = iter(order)
    for s, begin in enumerate(offsets(lengths)[:-1]):
        for n in range(counts[s]):
            table[s, n] = next(taken)
            part = rows[begin + n * page : begin + min(lengths[s], (n + 1) * page)]
            pool[table[s, n], : len(part)] = part
    return pool, table


OPTIONS = ({}, {"causal": True}, {"window": (20, 3)}, {"causal": True, "window": (7, None)})


@pytest.mark.parametrize("name", ["f4", "f2"])
@pytest.mark.parametrize("heads", [(4, 2), (3, 3)])
def test_ragged(draw, heads, name):
    dtype, (queries, keys) = dtype_of(name), LENGTHS
    q = draw.layout(draw.numbers.standard_normal((sum(queries), heads[0], 24)).astype(dtype))
    k = draw.layout(draw.numbers.standard_normal((sum(keys), heads[1], 24)).astype(dtype))
    v = draw.layout(draw.numbers.standard_normal((sum(keys), heads[1], 16)).astype(dtype))
    begins = offsets(queries), offsets(keys, "i8")
    for options in draw.pick.sample(OPTIONS, 2):
        out = np.full((*q.shape[:-1], 16), np.nan, dtype)
        assert kernels.attention_ragged(q, k, v, *begins, out=out, **options) is out
        check_sequences(out, q, k, v, begins, name, options)


def check_sequences(
    out: Any, q: Any, k: Any, v: Any, begins: Any, name: str, options: dict[str, Any]
) -> None:
    """Compare each sequence of a ragged result."""
    for s in range(len(begins[0]) - 1):
        mine, own = (slice(b[s], b[s + 1]) for b in begins)
        causal, window = options.get("causal", False), options.get("window")
        check(out[mine], *of_sequence(q[mine], k[own], v[own], causal, window), EPS[name])


@pytest.mark.parametrize("page", [1, 16, 24])
def test_paged(draw, page):
    queries, keys = LENGTHS
    rows = [draw.numbers.standard_normal((sum(keys), 2, 24)).astype("f4") for _ in range(2)]
    q = draw.numbers.standard_normal((sum(queries), 4, 24)).astype("f4")
    k, table = pages_of(rows[0], keys, page, draw)
    v = np.full_like(k, np.nan)
    for s, begin in enumerate(offsets(keys)[:-1]):
        for i in range(keys[s]):
            v[table[s, i // page], i % page] = rows[1][begin + i]
    begins = offsets(queries), offsets(keys)
    for options in draw.pick.sample(OPTIONS, 2):
        out = np.full_like(q, np.nan)
        lengths = np.array(keys, "i4")
        kernels.attention_paged(q, k, v, table, lengths, q_offsets=begins[0], out=out, **options)
        check_sequences(out, q, rows[0], rows[1], begins, "f4", options)
    q = draw.numbers.standard_normal((5, 2, 4, 24)).astype("f4")
    out = np.full_like(q, np.nan)
    kernels.attention_paged(q, k, v, table, np.array(keys, "i8"), causal=True, out=out)
    each = offsets([2] * 5), begins[1]
    out, q = out.reshape(10, 4, 24), q.reshape(10, 4, 24)
    check_sequences(out, q, rows[0], rows[1], each, "f4", OPTIONS[1])


def test_offsets_of_keys_are_those_of_queries(draw):
    q, k, v = draw.numbers.standard_normal((3, 30, 2, 16)).astype("f4")
    begins = offsets([13, 17])
    out = kernels.attention_ragged(q, k, v, begins, causal=True)
    check_sequences(out, q, k, v, (begins, begins), "f4", {"causal": True})
    assert kernels.attention_ragged(q[:0], k, v, begins * 0, begins).shape == (0, 2, 16)


def test_slots_suffice_for_all_divisions():
    for seed in range(50):
        numbers = np.random.default_rng(seed)
        lengths = numbers.integers(0, 40, numbers.integers(1, 9))
        height, starts = int(numbers.integers(1, 17)), offsets(lengths)
        begins = starts // height + np.arange(len(starts))
        assert np.all(np.diff(begins) >= -(-lengths // height))
        assert begins[-1] <= slots(int(starts[-1]), len(lengths), height)


def test_refused(draw):
    q = np.zeros((6, 4, 8), "f4")
    begins = np.array([0, 6], "i4")
    with pytest.raises(LaunchTypeError, match="has dtype f32"):
        kernels.attention_ragged(q, q, q, begins.astype("f4"))
    with pytest.raises(LaunchError, match="a multiple of those"):
        kernels.attention_ragged(q, q[:, :3], q[:, :3], begins)
    with pytest.raises(LaunchError, match=r"have the shapes \(2,\), \(3,\)"):
        kernels.attention_ragged(q, q, q, begins, np.array([0, 3, 6], "i4"))
    with pytest.raises(LaunchError, match=r"`q` is \[tokens, heads, size\]"):
        kernels.attention_ragged(q[None], q, q, begins)
    pool, table, lengths = np.zeros((2, 3, 4, 8), "f4"), np.zeros((1, 2), "i4"), begins[1:]
    with pytest.raises(LaunchError, match=r"`q` is \[sequences, queries, heads, size\]"):
        kernels.attention_paged(q, pool, pool, table, lengths)
    with pytest.raises(LaunchError, match="have the shapes"):
        kernels.attention_paged(q[None], pool, pool, table[0], lengths)
    with pytest.raises(LaunchTypeError, match="`v` is f64"):
        kernels.attention_paged(q[None], pool, pool.astype("f8"), table, lengths)


WRONG = (-1, -7, 9, 10**9, 2**31 - 1, -(2**31), 2**40, -(2**62), 2**63 - 1)
"""Numbers that no offset, length or page is."""


@pytest.mark.parametrize("causal", [False, True])
def test_offsets_out_of_range_do_no_harm(causal: bool):
    rng = np.random.default_rng()
    q, k = np.ones((6, 4, 8), np.float32), np.ones((6, 2, 8), np.float32)
    memory = np.full((26, 4, 8), 7, np.float32)
    sound, out = np.array([0, 2, 4, 6]), memory[10:16]
    for _ in range(40):
        marks = rng.choice((0, 2, 4, 6, *WRONG), 4)
        kernels.attention_ragged(q, k, k, marks, sound, causal=causal, out=out)
        assert np.all(memory[:10] == 7) and np.all(memory[16:] == 7)
        marks[2:] = 4, 6  # the keys of the last
        kernels.attention_ragged(q, k, k, sound, marks, causal=causal, out=out)
        np.testing.assert_array_equal(out[4:], 1)


def test_pages_out_of_range_do_no_harm():
    rng = np.random.default_rng()
    q, pool = np.ones((3, 2, 4, 8), np.float32), np.ones((5, 2, 2, 8), np.float32)
    for _ in range(40):
        table = rng.choice((0, 1, 4, *WRONG), (3, 2))
        lengths = rng.choice((0, 3, 4, *WRONG), 3)
        table[2], lengths[2] = (4, -1), 2
        out = kernels.attention_paged(q, pool, pool, table, lengths)
        np.testing.assert_array_equal(out[2], 1)


def test_checked_mode_reports_them():
    q = np.ones((4, 1, 8), np.float32)
    page = q.reshape(2, 2, 1, 8)
    with cp.settings(checked=True):
        with pytest.raises(cp.OutOfBoundsError):
            kernels.attention_ragged(q, q, q, np.array([0, 4]), np.array([-9, 4]))
        with pytest.raises(cp.OutOfBoundsError):
            kernels.attention_paged(page, page, page, np.array([[-1], [0]]), np.array([2, 2]))


def test_an_end_behind_all_rows_is_the_last():
    q = np.ones((4, 1, 8), np.float32)
    np.testing.assert_array_equal(kernels.attention_ragged(q, q, q, np.array([0, 9])), q)
