"""Which arrays prebuilt functions take, and that results are of the caller's kind and device."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.calls import libraries
from tests.optional import require_package


@pytest.fixture(params=["cpu", "opencl:0"])
def device(request: pytest.FixtureRequest, require_text_device: Any) -> str:
    if request.param != "cpu":
        require_text_device("pocl")
    return request.param


X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7


@pytest.mark.optional("pyopencl", "pocl_binary_distribution")
def test_cubepys_arrays(device: str):
    x = cp.asarray(X, device=device)
    total = kernels.sum(x, 1)
    assert isinstance(total, cp.Array)
    assert (total.device, total.shape) == (device, (4,))
    np.testing.assert_array_equal(total.numpy(), X.sum(1))
    doubled = kernels.map(lambda v: v * 2, x)
    np.testing.assert_array_equal(kernels.max(doubled, 0).numpy(), X.max(0) * 2)
    out = cp.empty((6,), device=device)
    assert kernels.sum(x, 0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X.sum(0))
    np.testing.assert_array_equal(kernels.sum(x[1:, ::2], 0).numpy(), X[1:, ::2].sum(0))
    assert kernels.sum(x).shape == ()


@pytest.mark.optional("pyopencl", "pocl_binary_distribution")
def test_results_keep_the_order_of_axes(device: str):
    turned = np.ascontiguousarray(X.T)
    x = cp.asarray(turned, device=device)
    memory = libraries.read(x)
    x = cp.Array(libraries._permuted(memory, (1, 0)))
    found = kernels.map(lambda v: v + 1, x)
    assert found.strides == (4, 16)
    np.testing.assert_array_equal(found.numpy(), X + 1)


@pytest.mark.optional("torch")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_results_are_refused():
    torch = require_package("torch")
    with pytest.raises(LaunchTypeError, match="sparse"):
        kernels.sum(torch.zeros(4, 6), 0, out=torch.zeros(6).to_sparse())
    with pytest.raises(LaunchTypeError, match="no kernel reaches"):
        kernels.sum(torch.zeros(4, 6, device="meta"), 0)
    with pytest.raises(LaunchTypeError, match="cannot be read"):
        kernels.sum(torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]))
    with pytest.raises(LaunchTypeError, match="cannot be read"):
        torch.func.vmap(kernels.softmax)(torch.ones(3, 4))


@pytest.mark.optional("torch")
def test_gradients_of_what_was_overwritten_are_refused():
    """As torch refuses them behind its own functions that write."""
    torch = require_package("torch")
    x, weight = torch.from_numpy(X.copy()), torch.ones(len(X), requires_grad=True)
    mean, var = torch.zeros(6), torch.ones(6)
    for _ in range(5):
        saved = torch.zeros(len(X))
        loss = (weight * saved).sum()
        kernels.sum(x, 1, out=saved)
        assert saved._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        before = mean._version
        kernels.batch_norm(x, mean, var, training=True)
        assert mean._version > before
    out = torch.zeros(len(X))
    with cp.Graph() as graph:
        kernels.sum(x, 1, out=out)
    before = out._version
    graph.replay()
    assert out._version > before


@pytest.mark.optional("torch")
def test_duals_are_refused():
    """A result would have no tangent, and nobody would see it; also where the call is known."""
    torch = require_package("torch")
    fw = torch.autograd.forward_ad
    x, tangent, out = torch.from_numpy(X.copy()), torch.ones(X.shape), torch.zeros(len(X))
    for _ in range(4):
        kernels.sum(x, 1)
        kernels.sum(x, 1, out=out)
    with fw.dual_level():
        dual = fw.make_dual(x, tangent)
        for call in (lambda: kernels.sum(dual, 1), lambda: kernels.sum(dual, 1, out=out)):
            with pytest.raises(LaunchTypeError, match="carries a tangent.*\n.*primal"):
                call()
        assert torch.equal(kernels.sum(x, 1), x.sum(1))
        assert torch.equal(kernels.sum(fw.unpack_dual(dual).primal, 1), x.sum(1))


@pytest.mark.optional("torch")
def test_tensors():
    torch = require_package("torch")
    x = torch.from_numpy(X.copy())
    total = kernels.sum(x, 1)
    assert isinstance(total, torch.Tensor)
    assert torch.equal(total, x.sum(1))
    half = kernels.map(lambda v: v * 2, x.to(torch.bfloat16))
    assert half.dtype is torch.bfloat16
    assert torch.equal(half, x.to(torch.bfloat16) * 2)
    assert kernels.sum(x).shape == ()


class Shown:
    """An array that is known by NumPy's interface alone."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held
        self.__array_interface__ = held.__array_interface__


def test_host_arrays_of_other_libraries():
    found = kernels.sum(Shown(X), 0)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, X.sum(0))
    out = np.empty(6, np.float32)
    kernels.sum(X, 0, out=Shown(out))
    np.testing.assert_array_equal(out, X.sum(0))


def test_two_libraries_are_refused():
    with pytest.raises(
        LaunchTypeError, match=r"E602: .*two libraries or devices.*`out` is CubePy's on cpu"
    ):
        kernels.sum(X, out=cp.empty(()))
    with pytest.raises(
        LaunchTypeError, match=r"\[0\]` is NumPy's on cpu and .*\[1\]` is CubePy's on"
    ):
        kernels.map(lambda a, b: a + b, X, cp.asarray(X.copy()))
    with pytest.raises(LaunchTypeError, match="is a list, not an array"):
        kernels.sum([1.0])


def test_scalars_of_numpy_are_arrays_without_axes():
    """What one function returns the next one takes; nothing is stored in them."""
    total = kernels.sum(X)
    assert total.dtype == np.float32 and total.shape == ()
    assert kernels.sum(total) == total == kernels.max(total)
    assert kernels.sum(np.bool_(True)) == 1
    np.testing.assert_array_equal(kernels.map(lambda a, b: a * b, X, total), X * total)
    with pytest.raises(LaunchError, match="E601: sum: `out` is read-only"):
        kernels.sum(X, out=np.float32(0))
    with pytest.raises(LaunchTypeError, match="dtype complex64"):
        kernels.sum(np.complex64(1))


def test_masked_arrays_are_refused():
    """Kernels would count elements that do not count."""
    masked = np.ma.masked_array(X, X > 0)
    calls = (
        lambda: kernels.sum(masked),
        lambda: kernels.sum(X, 0, out=np.ma.masked_array(np.empty(6, np.float32))),
        lambda: kernels.map(lambda a, b: a + b, X, masked),
    )
    kernels.sum(X)
    for call in calls:
        with pytest.raises(LaunchTypeError, match="is masked"):
            call()


def test_overlaps_are_refused():
    x = cp.asarray(X.copy())
    with pytest.raises(LaunchError, match="`out` overlaps another argument"):
        kernels.sum(x, 0, out=x[0])


def test_a_device_serves_host_arrays():
    with libraries.serving("interpreter"):
        found = kernels.sum(X, 1)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, X.sum(1))


def test_addresses_of_a_gpu_are_specialised_on_their_alignment(monkeypatch: pytest.MonkeyPatch):
    """Plans of libraries that keep alignment take the same addresses as others."""
    library = libraries.ArrayLibrary("cpu")
    library.keeps_alignment = True
    monkeypatch.setattr(libraries, "arrays_on", lambda device: library)
    held: Any = (ctypes.c_float * 64)()
    whole = np.frombuffer(held, np.float32)
    whole[:] = np.arange(64)
    for first in (0, 1, 5, 16):
        x = cp.asarray(whole[first : first + 40].reshape(4, 10))
        np.testing.assert_array_equal(kernels.sum(x, 0).numpy(), x.numpy().sum(0))
        np.testing.assert_array_equal(kernels.sum(x, 1).numpy(), x.numpy().sum(1))
        np.testing.assert_array_equal(kernels.map(lambda v: v * 2, x).numpy(), x.numpy() * 2)


def test_messages_name_arrays_by_their_shapes():
    """As where a function has its parameters in another order than one thinks."""
    x = np.ones((20, 768), np.float32)
    calls = (
        lambda: cp.kernels.layer_norm(x, x[0], x[0]),
        lambda: cp.kernels.sum(x, x),
        lambda: cp.kernels.topk(x, x[0]),
        lambda: cp.kernels.max_pool2d(x, x[0]),
    )
    for call in calls:
        with pytest.raises(cp.Error) as found:
            call()
        text = str(found.value)
        assert "an array of shape (" in text and "..." not in text and len(text) < 800
    with pytest.raises(cp.Error, match="it takes integers"):
        cp.kernels.max_pool2d(x[None], np.ndarray)
    with pytest.raises(cp.Error) as found:
        cp.kernels.max_pool2d(x, ["window"] * 1000)
    assert len(str(found.value)) < 800


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("a", lambda x: kernels.matmul(None, x)),
        ("b", lambda x: kernels.matmul(x, None)),
        ("b", lambda x: kernels.matmul(x, None, bias=x)),
        ("epilogue[1]", lambda x: kernels.matmul(x, x, epilogue=(shifted, None))),
        ("weight", lambda x: kernels.conv1d(x, None)),
        ("weight", lambda x: kernels.conv1d(x, None, bias=x)),
        ("k", lambda x: kernels.attention(x, None, x)),
        ("v", lambda x: kernels.attention(x, x, None)),
        ("x", lambda _: kernels.layer_norm(None, 4)),
        ("x", lambda x: kernels.group_norm(None, 2, x)),
        ("index", lambda x: kernels.gather(x, None)),
        ("target", lambda x: kernels.cross_entropy(x, None)),
        ("q", lambda x: kernels.attention_paged(None, x, x, x, x)),
    ],
)
def test_arguments_that_are_missing_are_named(name: str, given: Any):
    """None is no argument that is left out, unless it may be; nor does another take its place."""
    with pytest.raises(LaunchTypeError, match=re.escape(f"`{name}` is a NoneType")):
        given(np.ones((4, 4), "f4"))


@cp.cube
def shifted(v: Any, index: Any, by: Any) -> Any:
    return v + by[index]
