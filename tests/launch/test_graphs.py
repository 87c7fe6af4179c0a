"""Graphs: what is recorded is checked then, and done by replays on arrays as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError
from tests.optional import require_package


@cp.cube
def axpy(x, y, out, a: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


FACTOR = 2.0


@cp.cube
def scaled(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * FACTOR


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_replays_do_in_order_what_was_recorded(device: str):
    x, y, out = numbers(3, 5), numbers(3, 5), np.full((3, 5), np.nan, np.float32)
    first = axpy.configure(device=device).over(out)
    graph = cp.Graph()
    with graph:
        first(x, y, out, 2.0)
        first(out, out, out, 3.0)
    assert len(graph) == 2 and np.isnan(out).all()
    for _ in range(6):
        x[:] = numbers(3, 5)
        graph.replay()
        np.testing.assert_allclose(out, (x * 2 + y) * 4, rtol=1e-5)


def test_prebuilt_functions_fill_what_they_gave():
    x, w, bias = numbers(4, 6), numbers(6, 7), numbers(7)
    given = np.full((4, 7), np.nan, np.float32)
    graph = cp.Graph()
    with graph:
        product = cp.kernels.matmul(x, w, bias=bias, out=given)
        total = cp.kernels.sum(product)
        values, indices = cp.kernels.topk(product, 3)
        weights = cp.kernels.softmax(values)
        where = cp.kernels.where(product > 0, product, 0.0)
    assert product is given and np.isnan(given).all() and np.shape(total) == ()
    chosen = np.array(where)  # what the comparison saw in the block
    for _ in range(6):
        x[:] = numbers(4, 6)
        graph.replay()
        wanted = x.astype("f8") @ w + bias
        np.testing.assert_allclose(product, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(total, wanted.sum(), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(values, np.sort(product, 1)[:, :-4:-1])
        np.testing.assert_array_equal(np.take_along_axis(product, indices, 1), values)
        np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
        assert (where == 0).all() and chosen.shape == where.shape  # NaN > 0 was false


def test_functions_that_update_their_arguments():
    x, mean, var = numbers(8, 3), np.zeros(3, np.float32), np.ones(3, np.float32)
    graph = cp.Graph()
    with graph:
        cp.kernels.batch_norm(x, mean, var, training=True, momentum=0.5)
    for k in range(1, 5):
        graph.replay()
        np.testing.assert_allclose(mean, x.mean(0) * (1 - 0.5**k), rtol=1e-4, atol=1e-6)


def test_copies_are_recorded():
    a, b = cp.zeros(4), np.arange(4, dtype=np.float32)
    graph = cp.Graph()
    with graph:
        a.copy_from(b)
    assert not a.numpy().any()
    b[:] = 7
    graph.replay()
    assert (a.numpy() == 7).all()


def test_settings_and_captured_names_are_those_of_the_replay(monkeypatch: pytest.MonkeyPatch):
    x, out = numbers(6), np.empty(6, np.float32)
    index = np.array([0, 9], np.int64)
    graph, gathering = cp.Graph(), cp.Graph()
    with graph:
        scaled.over(out)(x, out)
        cp.kernels.map(lambda v: v * FACTOR, x, out=(mapped := np.empty(6, np.float32)))
    with gathering:
        cp.kernels.gather(x, index)
    for factor in (2.0, 5.0, 5.0, 5.0, 3.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        graph.replay()
        np.testing.assert_array_equal(out, x * np.float32(factor))
        np.testing.assert_array_equal(mapped, x * np.float32(factor))
    for _ in range(3):
        gathering.replay()
    with cp.settings(checked=True), pytest.raises(cp.OutOfBoundsError):
        gathering.replay()


@pytest.mark.optional("torch")
def test_arrays_that_moved_are_found_again():
    torch = require_package("torch")
    x, out = torch.ones(5), torch.zeros(5)
    graph = cp.Graph()
    with graph:
        scaled.over(out)(x, out)
        total = cp.kernels.sum(x)
    for _ in range(4):
        graph.replay()
    x.data = torch.full((5,), 4.0)
    graph.replay()
    assert (out == 8).all() and total == 20
    x.data = torch.full((9,), 4.0)
    graph.replay()
    assert total == 36


def test_a_block_that_raises_leaves_what_was_recorded():
    x, out = numbers(6), np.empty(6, np.float32)
    graph = cp.Graph()
    with graph:
        scaled.over(out)(x, out)
    with pytest.raises(LaunchError), graph:
        axpy.over(out)(x, out, out, 1.0)
        scaled.over(out)(x)
    assert len(graph) == 1
    with graph:
        axpy.over(out)(x, x, out, 1.0)
    graph.replay()
    np.testing.assert_array_equal(out, x + x)
    scaled.over(out)(x, out)  # no block any more
    np.testing.assert_array_equal(out, x * FACTOR)


def test_what_cannot_be_launched_cannot_be_recorded():
    graph, x = cp.Graph(), numbers(6)
    with pytest.raises(LaunchError, match="E601"), graph:
        cp.kernels.softmax(x[:-1], out=x[1:])
    with pytest.raises(LaunchError), graph:
        cp.kernels.matmul(x, numbers(5))
    assert len(graph) == 0


def test_graphs_in_graphs():
    x, out = numbers(6), np.empty(6, np.float32)
    inner, outer = cp.Graph(), cp.Graph()
    with inner:
        scaled.over(out)(x, out)
    with outer:
        inner.replay()
        axpy.over(out)(out, out, out, 1.0)
        bound = scaled.over(out).bind(out, out)
        bound()
    assert len(outer) == 3
    outer.replay()
    np.testing.assert_allclose(out, x * FACTOR * 2 * FACTOR, rtol=1e-6)
    with outer:
        with pytest.raises(LaunchError, match=r"E420.*another one is"), inner:
            pass
        with pytest.raises(LaunchError, match=r"E420.*this very graph"):
            outer.replay()


def test_nothing_is_measured_while_a_graph_is_recorded(tmp_path: Any):
    calls: list[int] = []

    @cp.autotuned(space={"n": (1, 2, 3)}, key=lambda x, out: x.shape)
    def tuned(x: Any, out: Any, *, config: Any) -> None:
        calls.append(config["n"])
        scaled.over(out)(x, out)

    x, out, graph = numbers(6), np.zeros(6, np.float32), cp.Graph()
    with cp.settings(cache=True, cache_dir=str(tmp_path)), cp.tuning(level="quick"), graph:
        tuned(x, out)
    assert calls == [1] and len(graph) == 1 and not out.any()
    graph.replay()
    np.testing.assert_array_equal(out, x * FACTOR)
