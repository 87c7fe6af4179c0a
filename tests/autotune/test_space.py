"""Spaces and keys as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.space import (
    Config,
    canonical,
    canonical_text,
    configurations,
    differences,
    ranked,
    variants,
)
from cubepy.kernels.matmul.strategies import choose
from tests.autotune.problems import PROBLEM, TARGET


def test_an_anchor_is_the_next_power_of_two():
    assert [cp.anchor(n) for n in (-3, 0, 1, 2, 3, 4, 5, 1000, 1024, 1025)] == [
        *(-3, 0, 1, 2, 4, 4, 8, 1024, 1024, 2048)
    ]


def test_a_space_is_the_product_of_its_axes_in_order_without_doubles():
    found = configurations({"a": (1, 2), "b": ("x", "y", "x")})
    assert [dict(c) for c in found] == [{"a": a, "b": b} for a in (1, 2) for b in ("x", "y")]
    assert configurations([{"a": 1}, {"a": 1}, {"b": 2}]) == (Config({"a": 1}), Config({"b": 2}))


@pytest.mark.parametrize("space", [{}, [], "ab", 3, {"a": 3}, {"a": "xy"}, {"a": ()}])
def test_what_is_no_space_is_refused(space):
    if space == {}:
        assert configurations(space) == (Config({}),)
        return
    with pytest.raises(TypeError):
        configurations(space)
    with pytest.raises(TypeError):
        configurations({"a": range(300), "b": range(300)})


def test_equal_data_has_equal_text_and_other_data_has_not():
    one = {"b": (1, 2), "a": cp.f32, "c": np.float32(1.5), "d": None, "e": True}
    two = dict(sorted({**one, "a": np.dtype("f4"), "b": [1, 2], "c": 1.5}.items()))
    assert (
        canonical_text(one)
        == canonical_text(two)
        == ('{"a":"f32","b":[1,2],"c":1.5,"d":null,"e":true}')
    )
    assert canonical(ml_dtypes.bfloat16) == "bf16"
    assert len({canonical_text(v) for v in (1, 1.0, True, "1", None, (1,), cp.i32)}) == 7
    assert json.loads(canonical_text(choose(TARGET, PROBLEM)))["Blocks"]["sums"] == "f32"
    assert canonical_text(float("nan")) == '"nan"'
    for value in (object(), lambda: None):
        with pytest.raises(TypeError, match="plain data"):
            canonical(value)


def test_a_configuration_is_a_mapping_that_nobody_changes():
    c = Config({"b": 2, "a": 1})
    assert c["a"] == 1 and list(c) == ["b", "a"] and c == {"a": 1, "b": 2}
    assert c == Config({"a": 1, "b": 2}) and hash(c) == hash(Config({"a": 1, "b": 2}))
    assert c != Config({"a": 1.0, "b": 2})  # a comptime key distinguishes them too
    with pytest.raises(TypeError):
        c["a"] = 3  # type: ignore[index]


@dataclass(frozen=True)
class Tiling:
    rows: int
    columns: int
    kind: str = "a"


def test_variants_are_named_by_what_they_change_the_nearest_first():
    first = Tiling(8, 8)
    axes = {"rows": (1, 4, 8), "kind": ("a", "b")}
    found = variants(first, axes, lambda t, rows, kind: replace(t, rows=rows, kind=kind))
    assert list(found) == [
        '{"kind":"a","rows":4}',
        '{"kind":"b","rows":8}',
        '{"kind":"b","rows":4}',
        '{"kind":"a","rows":1}',
        '{"kind":"b","rows":1}',
    ]
    others = differences((first, Tiling(8, 4), first, Tiling(8, 4), Config({"n": 1})))
    assert list(others) == ['{"columns":4}', '{"n":1}']


def test_constraints_and_priorities_order_the_candidates():
    configs = configurations({"n": (1, 2, 3, 4, 5)})
    legal = ranked(configs, "target", (7,), lambda c, t, p: c["n"] < 5, None)
    assert [c["n"] for c in legal] == [1, 2, 3, 4]
    seen = []

    def priority(c, target, problem):
        seen.append((target, problem))
        return -1 if c["n"] == 2 else c["n"] % 2

    assert [c["n"] for c in ranked(configs, "target", (7,), None, priority)] == [1, 3, 5, 4]
    assert set(seen) == {("target", (7,))}


@pytest.mark.parametrize("rank", [None, "1", float("nan")])
def test_a_priority_that_is_no_number_is_refused(rank: object):
    with pytest.raises(TypeError, match="`priority` gives .* for Config"):
        ranked(configurations({"n": (1, 2)}), "target", (), None, lambda *given: rank)


def test_priorities_are_any_numbers():
    configs = configurations({"n": (1, 2)})
    found = ranked(configs, "target", (), None, lambda c, *given: np.int64(c["n"]))
    assert [c["n"] for c in found] == [2, 1]
