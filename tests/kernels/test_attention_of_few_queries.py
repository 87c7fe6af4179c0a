"""Attention of few queries, which CPUs read keys and values once for, as they lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.kernels.attention.problem import Few, Problem
from cubepy.kernels.attention.strategies import choose, heads_together
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec
from cubepy.targets import parse_target
from tests.guarded import Guarded
from tests.kernels.test_attention import EPS, attended, check, dtype_of, rounding_of
from tests.kernels.test_attention_of_sequences import check_sequences, offsets, pages_of

V3 = parse_target("cpu:x86-64-v3")


@pytest.mark.parametrize("name", EPS)
@pytest.mark.parametrize("queries", [1, 2, 3, 5, 7, 8])
def test_of_any_shape(draw: Any, queries: int, name: str):
    dtype, computed = dtype_of(name), EPS["f8" if name == "f8" else "f4"]
    shapes = (((2,), 700, 80, 64), ((), 301, 33, 17), ((1, 3), 5, 8, 130), ((), 1, 3, 1))
    for batch, keys, size, width in draw.pick.sample(shapes, 1):
        q = draw.layout(draw.numbers.standard_normal((*batch, queries, size)).astype(dtype))
        k = draw.layout(draw.numbers.standard_normal((*batch, keys, size)).astype(dtype))
        v = draw.layout(draw.numbers.standard_normal((*batch, keys, width)).astype(dtype))
        mask = draw.pick.choice((None, draw.numbers.random((queries, keys)) < 0.6))
        causal, window = draw.pick.choice((False, True)), draw.pick.choice((None, (5, 290)))
        out = Guarded((*batch, queries, width), dtype)
        kernels.attention(q, k, v, causal=causal, window=window, mask=mask, out=out.array)
        out.check(out.array)
        sides = window or (None, None)
        expected = attended(q, k, v, mask, causal, computed, sides, rounding_of(name))
        check(out.array, *expected, EPS[name])


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_heads_that_share_keys(draw: Any, groups: int):
    q = draw.layout(draw.numbers.standard_normal((3, 6, 1, 40)).astype("f4"))
    k, v = draw.numbers.standard_normal((2, 3, 6 // groups, 530, 40)).astype("f4")
    wide = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    sees = draw.numbers.random((6, 1, 530)) < 0.7
    added = draw.numbers.standard_normal((3, 1, 1, 530)).astype("f4")
    for mask in (None, sees, added):
        out, logs = Guarded((3, 6, 1, 40), np.dtype("f4")), Guarded((3, 6, 1), np.dtype("f4"))
        kernels.attention(q, k, v, mask=mask, return_lse=True, out=(out.array, logs.array))
        out.check(out.array)
        logs.check(logs.array)
        check(out.array, *attended(q, *wide, mask, False, EPS["f4"]), EPS["f4"])
        scores = q.astype("f8") @ wide[0].astype("f8").swapaxes(-1, -2) / 40**0.5
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        np.testing.assert_allclose(logs.array, np.log(np.exp(scores).sum(-1)), 1e-5, 1e-5)


@pytest.mark.parametrize("shape", [(3, 1, 130, 24), (1, 130, 24), (130, 24), (2, 1, 1, 130, 24)])
def test_heads_that_broadcasting_gives_the_same_keys(draw: Any, shape: tuple[int, ...]):
    q = draw.layout(draw.numbers.standard_normal((3, 6, 1, 24)).astype("f4"))
    k = draw.numbers.standard_normal(shape).astype("f4")
    v = draw.numbers.standard_normal(shape[-2:]).astype("f4")
    for mask in (None, draw.numbers.random((6, 1, 130)) < 0.7):
        out = kernels.attention(q, k, v, mask=mask)
        check(out, *attended(q, k, v, mask, False, EPS["f4"]), EPS["f4"])


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (20, 3)}])
@pytest.mark.parametrize("heads", [(6, 2), (4, 1), (3, 3)])
def test_a_query_of_each_sequence_in_pages(draw: Any, heads: tuple[int, int], options: Any):
    keys = [37, 1, 300, 16, 5]
    k = draw.numbers.standard_normal((sum(keys), heads[1], 24)).astype("f4")
    pool, table = pages_of(k, keys, 16, draw)
    q = draw.numbers.standard_normal((5, 1, heads[0], 24)).astype("f4")
    out = Guarded((5, 1, heads[0], 24), np.dtype("f4"))
    lengths = np.array(keys, "i4")
    kernels.attention_paged(q, pool, pool, table, lengths, out=out.array, **options)
    out.check(out.array)
    begins = offsets([1] * 5), offsets(keys)
    check_sequences(out.array[:, 0], q[:, 0], k, k, begins, "f4", options)


def test_a_row_that_sees_nothing_and_numbers_that_are_none(draw: Any):
    q, k, v = draw.numbers.standard_normal((3, 4, 1, 8)).astype("f4")
    assert np.all(kernels.attention(q, k, v, mask=np.zeros((4, 1, 1), bool)) == 0)
    assert np.all(kernels.attention(q, k[:, :0], v[:, :0]) == 0)
    q[2] = np.nan
    assert np.isnan(kernels.attention(q, k, v)).all((1, 2)).tolist() == [False, False, True, False]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("queries", [1, 9])
def test_a_query_that_sees_nothing_gives_zeros_of_values_that_are_no_numbers(
    queries: int, dtype: str
):
    q = np.ones((3, queries, 20), dtype)
    sees = np.arange(queries)[:, None] % 2 > np.zeros(70)
    for value in (np.nan, np.inf):
        k, v = np.ones((3, 70, 20), dtype), np.full((3, 70, 20), value, dtype)
        found, logs = kernels.attention(q, k, v, mask=sees, return_lse=True)
        assert np.all(found[:, ::2] == 0) and np.all(logs[:, ::2] == -np.inf)
        assert not np.isfinite(found[:, 1::2]).any()


@pytest.mark.parametrize("queries", [1, 3, 8, 9])
def test_sums_of_many_equal_weights_are_close(queries: int):
    """A sum that takes one key after the other is 2e-4 off."""
    keys, v = np.zeros((20000, 16), "f4"), np.full((20000, 16), 0.1, "f4")
    found = kernels.attention(np.ones((queries, 16), "f4"), keys, v)
    np.testing.assert_allclose(found, v[:queries], 1e-5)


@pytest.mark.parametrize("queries", [1, 9])
def test_sequences_that_grow_compile_seldom(queries: int, monkeypatch: pytest.MonkeyPatch):
    built, build = list[str](), LlvmCompiler.build

    def noted(self: LlvmCompiler, *args: Any, **options: Any) -> Any:
        built.append("")
        return build(self, *args, **options)

    monkeypatch.setattr(LlvmCompiler, "build", noted)
    for count in range(1, 300, 2):
        x = np.ones((3, count, 28), "f4")
        kernels.attention(np.ones((3, queries, 28), "f4"), x, x)
    assert len(built) <= 8


def test_keys_are_read_once_for_as_many_heads_as_leave_one_for_each_core():
    one = Problem(32, 1, 4096, 128, 128, spec("f32[1]").dtype, False)
    assert isinstance(choose(V3, one), Few) and not isinstance(
        choose(V3, replace(one, queries=9)), Few
    )
    for cores, rows in ((1, 4), (8, 4), (16, 2), (32, 1), (64, 1)):
        assert heads_together(replace(V3, cores=cores), 32, 4) == rows
    specs = {"q": spec("f32[2,8,1,64]"), "k": spec("f32[2,2,99,64]"), "v": spec("f32[2,2,99,64]")}
    (launch,) = record(kernels.attention, specs, {}, replace(V3, cores=4))
    assert launch.arguments["q"].shape == (2, 2, 1, 4, 64)
    assert launch.arguments["k"].shape == (2, 2, 1, 99, 64)
