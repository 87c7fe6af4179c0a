"""Torch tensors and those of other libraries as arguments, without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.optional import require_package

torch = require_package("torch")


@cp.cube
def double(x: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + x.flat[i]


DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"]


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name: str):
    x = torch.arange(50).reshape(5, 10).to(getattr(torch, name))
    for view in (x, x.T, x[1:, ::2], x[:0], x[3, 4]):
        out = torch.full(view.shape, 99).to(x.dtype)
        double.over(out)(view, out)
        assert torch.equal(out, view + view)


def test_tensors_and_arrays_together():
    x, out = torch.arange(6.0), np.zeros(6, np.float32)
    for _ in range(2):
        double.over(out)(x, out)
        np.testing.assert_array_equal(out, 2 * x.numpy())
        double.over(x)(x, x)
        np.testing.assert_array_equal(out, x.numpy())


def refused(code: str, x: Any, out: Any) -> None:
    before = None if out.requires_grad else out.detach().clone()
    with pytest.raises(cp.LaunchError) as caught:
        double.over(out)(x, out)
    assert caught.value.code == code, caught.value
    assert before is None or torch.equal(out.detach(), before)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (torch.eye(3).to_sparse(), "it is sparse: pass its .to_dense()"),
        (torch.empty(6, device="meta"), "torch's device meta"),
    ],
)
def test_tensors_without_elements_make_no_array(x: Any, text: str):
    with pytest.raises(cp.LaunchError, match="E401: asarray: `obj` is a Tensor") as found:
        cp.asarray(x)
    assert text in str(found.value)


def without_memory(n: int) -> list[Any]:
    """Tensors on the CPU of `n` elements that have no memory: a fake one, and an emptied one."""
    fake_tensors = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake_tensors.FakeTensorMode():
        fake = torch.zeros(n)
    emptied = torch.zeros(n)
    behind, far = torch.zeros(n + 2)[2:], torch.zeros(n + (1 << 15))[1 << 15 :]
    for x in (emptied, behind, far):
        x.untyped_storage().resize_(0)
    return [fake, emptied, behind, far]


def test_tensors_without_memory_are_refused():
    x, out = torch.ones(6), torch.zeros(6)
    for _ in range(5):  # later with all that is remembered of launches
        double.over(out)(x, out)
        for absent in without_memory(6):
            for given in ((absent, out), (x, absent)):
                with pytest.raises(cp.LaunchError, match="E401.* no memory"):
                    double.over(6)(*given)
            with pytest.raises(cp.LaunchError, match="no memory"):
                cp.kernels.sum(absent)
        assert cp.kernels.sum(x) == 6
        assert cp.kernels.sum(torch.ones(0)) == 0


@pytest.mark.parametrize("calls", [0, 1, 4])
def test_results_without_memory_are_refused(calls):
    """A function makes its result by torch, whose mode may make it a fake one."""
    fake_tensors = pytest.importorskip("torch._subclasses.fake_tensor")
    x = torch.ones(3, 5 + calls)
    for _ in range(calls):
        cp.kernels.sum(x, axis=1)
    mode = fake_tensors.FakeTensorMode(allow_non_fake_inputs=True)
    for _ in range(3):
        with mode, pytest.raises(cp.LaunchError, match="E602.* no memory"):
            cp.kernels.sum(x, axis=1)
    assert cp.kernels.sum(x, axis=1).tolist() == [5.0 + calls] * 3


def test_what_is_refused():
    x = torch.arange(6.0)
    refused("E405", x[:-1], x[1:])
    refused("E410", x, x[:1].expand(6))
    refused("E401", x.to(torch.complex64), x)
    refused("E401", torch.eye(3).to_sparse(), torch.zeros(3, 3))
    refused("E401", torch.empty(6, device="meta"), x)


def test_duals_are_read_and_not_written():
    """A kernel that writes to the primal would leave the tangent of what was there."""
    fw, x, out = torch.autograd.forward_ad, torch.ones(4), torch.zeros(4)
    with fw.dual_level():
        dual = fw.make_dual(x, torch.ones(4))
        double.over(4)(dual, out)
        with pytest.raises(cp.LaunchError, match=r"E404.*\n.*carries a tangent"):
            double.over(4)(out, dual)
    assert torch.equal(out, 2 * x)


def test_tensors_that_record_gradients():
    """They may be read; what torch would not know of is not written."""
    x, out = torch.ones(4, requires_grad=True), torch.zeros(4)
    grown = double.over(4)
    for _ in range(4):
        grown(x, out)
    assert torch.equal(out, torch.full((4,), 2.0))
    loss = (x**2).sum()
    for _ in range(4):
        with pytest.raises(cp.LaunchError, match=r"E404.*\n.*requires grad.*detach"):
            grown(out, x)
        with torch.no_grad():
            grown(out, out)
    loss.backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))
    with torch.no_grad():
        bound = grown.bind(out, x)
        for _ in range(4):
            bound()
    assert torch.equal(x.detach(), 2 * out)
    for _ in range(4):
        with pytest.raises(cp.LaunchError, match="E404"):
            bound()
    late = torch.zeros(4)
    remembered = grown.bind(out, late)
    for _ in range(4):
        remembered()
    late.requires_grad_()
    with pytest.raises(cp.LaunchError, match="E404"):
        remembered()


def test_a_tensor_over_numpy_memory():
    memory = np.arange(8, dtype=np.float32)
    tensor = torch.from_numpy(memory)
    double.over(tensor)(memory, tensor)
    np.testing.assert_array_equal(memory, 2 * np.arange(8))
    with pytest.raises(cp.LaunchError, match="E405"):
        double.over(7)(memory[1:], tensor[:-1])


def test_negated_and_conjugated_views():
    """Torch keeps some operations as bits on the view; memory alone would be wrong."""
    x = torch.arange(4.0)
    negative = torch.complex(x, x).conj().imag
    assert negative.is_neg()
    refused("E401", negative, torch.zeros(4))


class Interface:
    """Any object with `__array_interface__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__
        self.shape, self._keep = array.shape, array


class Capsule:
    """Any object with DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape = array, array.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("wrapper", [Interface, Capsule])
def test_protocols(wrapper: Any):
    x, out = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    double.over(out)(wrapper(x), out)
    np.testing.assert_array_equal(out, 2 * x)
    out[:] = 0
    if wrapper is Interface:
        wrapped = wrapper(out)
        double.over(wrapped)(x, wrapped)
        np.testing.assert_array_equal(out, 2 * x)


def test_subclasses_of_ndarray(tmp_path: Any):
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(30,))
    mapped[:] = np.arange(30)
    out = np.zeros((5, 6), np.float32).view(np.matrix)
    double.over(out)(mapped.reshape(5, 6), out)
    np.testing.assert_array_equal(np.asarray(out).ravel(), 2 * np.arange(30))
    with pytest.raises(cp.LaunchError, match="E401.*masked"):
        double.over(30)(np.ma.masked_array(mapped, mapped > 3), mapped)
