"""Parameters that are numbers: what is no number, and what does not fit, is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError

untyped: Any = kernels
X = np.ones((2, 4), np.float32)
HUGE = 10**400
Q = np.ones((4, 2), np.int8)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "layer_norm": (lambda: untyped.layer_norm(X, 4, eps="a"), "`eps` is 'a'"),
    "rms_norm": (lambda: untyped.rms_norm(X, 4, eps="1.0"), "`eps` is '1.0'"),
    "group_norm": (lambda: untyped.group_norm(X, 2, eps=None), "`eps` is None"),
    "batch_norm": (lambda: untyped.batch_norm(X, training=True, momentum=[1]), "`momentum`"),
    "attention": (lambda: untyped.attention(X, X, X, scale=HUGE), "`scale`"),
    "zero point": (lambda: untyped.matmul(X, untyped.Quantised(Q, 1.0, 2**40)), "b.zero_point"),
    "scale": (lambda: untyped.matmul(X, untyped.Quantised(Q, HUGE)), "b.scale"),
    "quantize": (lambda: untyped.quantize(X, HUGE), "`scale` is 1000"),
    "where": (lambda: untyped.where(X > 0, X, HUGE), "does not fit f32"),
    "map": (lambda: untyped.map(lambda a, b: a + b, X, HUGE), "does not fit f32"),
    "scatter": (lambda: untyped.scatter(X, np.array([0]), HUGE), "does not fit f32"),
    "var": (lambda: untyped.var(X, correction=0.5), "`correction` is 0.5"),
    "std": (lambda: untyped.std(X, ddof="1"), "`ddof` is '1'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_numbers_are_refused_by_name(name: str):
    call, match = REFUSED[name]
    with pytest.raises((LaunchTypeError, LaunchError), match=match):
        call()


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int32, np.array])
def test_numbers_of_numpy_are_numbers(kind: Any):
    one = kind(1)
    for found, wanted in (
        (kernels.layer_norm(X, 4, eps=one), kernels.layer_norm(X, 4, eps=1.0)),
        (kernels.attention(X, X, X, scale=one), kernels.attention(X, X, X, scale=1.0)),
        (kernels.quantize(X, np.float32(one)), kernels.quantize(X, 1.0)),
    ):
        np.testing.assert_array_equal(found, wanted)
