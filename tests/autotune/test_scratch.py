"""Copies of arguments: all that candidates may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from cubepy.autotune.scratch import Scratch, Uncopyable
from tests.optional import require_package


@dataclass(frozen=True)
class Pair:
    x: Any
    n: int


class Named(NamedTuple):
    x: Any
    y: Any


def test_copies_keep_layout_content_alignment_and_who_shares_memory():
    base = np.arange(100, dtype=np.float32)
    views = (base[3:40:3], base[50:10:-2].reshape(4, 5), base[:0], base[7:8].reshape(()))
    other = np.asfortranarray(np.random.rand(4, 6))
    scratch = Scratch((base, *views, other), {"again": base, "n": 3})
    whole, *copies, apart = scratch.args
    for a, b in zip((base, *views, other), scratch.args, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        assert not a.size or not np.shares_memory(a, b)
        assert a.ctypes.data % 64 == b.ctypes.data % 64
    assert scratch.kwargs == {"again": whole, "n": 3} or scratch.kwargs["again"] is whole
    assert all(np.shares_memory(whole, c) for c in copies if c.size)
    assert not np.shares_memory(whole, apart)
    whole[...] = -1
    assert (copies[0] == -1).all() and base[5] == 5
    scratch.restore()
    np.testing.assert_array_equal(whole, base)


def test_tuples_and_dataclasses_are_made_anew_and_other_values_kept():
    x, y, plain = np.ones(3), np.zeros(2), object()
    pair, named, nested, same = Scratch((Pair(x, 2), Named(x, y), ([x], {"y": y}), plain), {}).args
    assert pair.n == 2 and pair.x is not x and isinstance(named, Named)
    assert named.x is pair.x is nested[0][0] and nested[1]["y"] is named.y and same is plain


class Held:
    def __init__(self, x: Any):
        self.x, self.names, self.around = x, ["a"], self


def test_objects_that_hold_arrays_are_copied_and_others_kept():
    x, plain = np.ones(3), Held(2)
    held = Held({"inside": (x, Held(x))})
    copied, again, same = Scratch((held, x, plain), {}).args
    assert same is plain and type(copied) is Held and copied is not held
    assert copied.x["inside"][0] is copied.x["inside"][1].x is again is not x
    again[...] = 7
    assert (x == 1).all() and held.x["inside"][0] is x and copied.names == ["a"]


def test_poison_is_nan_and_written_contents_come_back():
    arrays = tuple(np.ones(5, t) for t in (np.float16, np.float32, np.float64, np.int32, np.bool_))
    scratch = Scratch(arrays, {})
    scratch.poisoned = set(scratch.keys())
    scratch.restore(poisoned=True)
    assert all(np.isnan(a).all() for a in scratch.args[:3]) and (scratch.args[3] == -1).all()
    scratch.restore()
    for a, b in zip(arrays, scratch.args, strict=True):
        np.testing.assert_array_equal(a, b)


def test_arrays_of_cubepy_and_read_only_ones():
    x = cp.asarray(np.arange(6.0).reshape(2, 3))
    fixed = np.ones(4)
    fixed.flags.writeable = False
    y, z = Scratch((x, fixed), {}).args
    assert type(y) is type(x) and not z.flags.writeable
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert read_memory(y).address != read_memory(x).address  # type: ignore[union-attr]


@pytest.mark.optional("torch")
def test_tensors_of_torch():
    torch = require_package("torch")
    x = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    scratch = Scratch((x, x.t()[1:], torch.zeros(0)), {})
    a, b, c = scratch.args
    assert torch.equal(a, x) and torch.equal(b, x.t()[1:]) and c.shape == (0,)
    assert b.stride() == x.t()[1:].stride() and a.data_ptr() != x.data_ptr()
    a.fill_(1)
    assert (b == 1).all() and x[0, 1] == 1 and x[1, 1] == 7
    with pytest.raises(Uncopyable):
        Scratch((torch.ones(2, requires_grad=True),), {})


def test_arrays_of_unknown_kinds_are_refused():
    class Mine(np.ndarray):
        pass

    with pytest.raises(Uncopyable):
        Scratch((np.ones(3).view(Mine),), {})
