"""`cp.asarray` and friends, views and copies, on devices with memory of their own."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.kernels import add, increment, scale
from tests.optional import require_package


@pytest.mark.parametrize("dtype", ["f32", "i64", "u8", "f16", "bf16", "bool"])
def test_there_and_back(device: str, dtype: str):
    held = np.asarray(cp.asarray(np.arange(35).reshape(5, 7), dtype=dtype).numpy())
    there = cp.asarray(held, device=device)
    assert there.device == device and there.shape == (5, 7) and there.dtype == dtype
    np.testing.assert_array_equal(there.numpy(), held)
    np.testing.assert_array_equal(there.to("cpu").numpy(), held)


def test_views(device: str):
    held = np.random.default_rng(1).normal(size=(6, 8, 5)).astype(np.float32)
    there = cp.asarray(held, device=device)
    for key in [0, (1, 2), (slice(1, 5, 2),), (..., -1), (None, 3), (slice(None, None, -1), 2)]:
        np.testing.assert_array_equal(there[key].numpy(), held[key])
    np.testing.assert_array_equal(there.reshape(-1, 5).numpy(), held.reshape(-1, 5))
    np.testing.assert_array_equal([a.numpy() for a in there[2]], held[2])
    assert there[1, 2, 3].item() == held[1, 2, 3]
    with pytest.raises(ValueError, match="copy"):
        there[:, ::2].reshape(-1)
    with pytest.raises(IndexError):
        there[[0, 1]]


def test_kernels_write_views(device: str):
    there = cp.zeros((8, 6), device=device)
    increment.over(there)(there)
    part = there[1:7:2, ::-2]
    increment.over(part)(part)
    expected = np.ones((8, 6), np.float32)
    expected[1:7:2, ::-2] += 1
    np.testing.assert_array_equal(there.numpy(), expected)


def test_launches_follow_arguments(device: str):
    dtype = np.float32 if device.startswith("metal") else np.float64  # Metal has no double
    held = [np.random.default_rng(k).normal(size=1003).astype(dtype) for k in (1, 2)]
    x, y = (cp.asarray(a, device=device) for a in held)
    out = cp.empty(1003, dtype, device)
    add.over(out)(x, y, out)
    np.testing.assert_array_equal(out.numpy(), x.numpy() + y.numpy())


def test_queued_launches_keep_their_order(device: str):
    x = cp.zeros(1 << 16, device=device)
    for _ in range(50):
        increment.over(x)(x)
    np.testing.assert_array_equal(x.numpy(), np.full(1 << 16, 50, np.float32))


def test_arrays_may_die_while_kernels_run(device: str):
    out = cp.empty(1 << 20, device=device)
    for k in range(20):
        x = cp.full(1 << 20, k, device=device)
        scale.over(out)(x, 2.0, out)
        del x
    np.testing.assert_array_equal(out.numpy(), np.full(1 << 20, 38, np.float32))


def test_two_places_are_refused(device: str):
    x, y = cp.zeros(4, device=device), np.zeros(4, np.float32)
    with pytest.raises(cp.LaunchError, match=f"E418.*`y` is on cpu, but `x` is on {device}"):
        add.over(y)(x, y, y)


def test_empty_and_scalar_arrays(device: str):
    nothing = cp.empty((0, 3), device=device)
    increment.over(nothing)(nothing)
    assert nothing.numpy().shape == (0, 3)
    one = cp.asarray(2.5, dtype="f32", device=device)
    increment.over(one)(one)
    assert one.item() == 3.5 and one.shape == ()


@pytest.mark.optional("torch")
def test_arrays_of_torch_tensors_are_read_whole():
    torch = require_package("torch")
    held = torch.arange(24.0).reshape(4, 6)[::2, 1:]
    seen = cp.asarray(held)
    np.testing.assert_array_equal(seen.numpy(), held.numpy())
    np.testing.assert_array_equal(seen[1, ::-1].numpy(), held.numpy()[1, ::-1])
    held += 1
    np.testing.assert_array_equal(seen.numpy(), held.numpy())
    seen = cp.asarray(torch.arange(6.0))
    np.testing.assert_array_equal(seen.reshape(2, 3).numpy(), np.arange(6.0).reshape(2, 3))


@pytest.mark.optional("torch")
def test_views_of_tensors_keep_them_alive():
    torch = require_package("torch")
    held = cp.asarray(torch.full((1 << 16,), 3.0)).numpy()
    for _ in range(4):
        torch.zeros(1 << 16)
    assert (held == 3).all()


def test_read_only_arrays_stay_read_only():
    held = np.arange(6, dtype=np.float32)
    held.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cp.asarray(held).numpy()[0] = 1
    with pytest.raises(cp.LaunchError, match="E404"):
        increment.over(held)(cp.asarray(held)[::2])


def test_dlpack_is_refused_where_it_knows_no_device(device: str):
    there = cp.zeros(4, device=device)
    if device.startswith("cuda"):
        assert there.__dlpack_device__() == (2, 0)
        return
    with pytest.raises(BufferError, match="numpy"):
        there.__dlpack_device__()
    with pytest.raises(BufferError, match="numpy"):
        np.from_dlpack(there)
    assert not hasattr(there, "__cuda_array_interface__")


def test_released_memory_leaves_arrays_alone(device: str):
    there = cp.full(1000, 3, device=device)
    cp.empty(1 << 20, device=device)
    cp.release_memory()
    np.testing.assert_array_equal(there.numpy(), np.full(1000, 3, np.float32))
    np.testing.assert_array_equal(cp.ones(1000, device=device).numpy(), np.ones(1000, np.float32))


def test_devices_equal_their_names(device: str):
    found = cp.device(device)
    assert cp.empty(3, device=device).device == found == device
    assert hash(found) == hash(device) and found in cp.devices()
    assert found != "cuda:99" and found != 0 and (found == cp.device("cpu")) is (device == "cpu")
    assert repr(found) == f"cp.device({device!r})"


def test_arrays_of_the_interpreter_are_on_the_host():
    """It reads and writes host memory, and runs what is configured to run there."""
    made = (
        cp.empty(3, device="interpreter"),
        cp.zeros(3, device="interpreter"),
        cp.asarray(np.zeros(3, np.float32), device=cp.device("interpreter")),
    )
    with cp.settings(device="interpreter"):
        made = (*made, cp.empty(3))
    for out in made:
        assert out.device == "cpu"
        out.numpy()[:] = 1
        increment.configure(device="interpreter").over(out)(out)
        assert out.numpy().tolist() == [2, 2, 2]


def test_an_array_of_one_element_is_a_number():
    array = cp.asarray(np.array([[2.5]], np.float32))
    assert (float(array), int(array), f"{array:.3f}") == (2.5, 2, "2.500")
    assert bool(array)
    assert not cp.zeros(1)
    assert "abc"[cp.asarray([2])] == "c"
    with pytest.raises(TypeError, match="f32 is no index"):
        operator.index(array)
    for shape in ((3,), (0,)):
        for kind in (bool, float, int):
            with pytest.raises(ValueError, match=r"an array of shape .* has no (truth|number)"):
                kind(cp.zeros(shape))


@pytest.mark.parametrize(
    "value, message",
    [
        (None, "`obj` is None, which makes an array of dtype object\n  help: pass an array, a num"),
        ("abc", "`obj` is of type str, which makes an array of dtype <U3\n  help: pass an array"),
        (["abc"], "`obj` is of type list, which makes an array of dtype <U3"),
        (1j, "dtype complex128\n  help: pass its real and imaginary parts as two arrays, obj.real"),
        (np.zeros(3, complex), "`obj` has dtype complex128, which no kernel takes"),
    ],
    ids=str,
)
def test_what_has_no_numbers_is_refused(value: Any, message: str):
    with pytest.raises(TypeError) as found:
        cp.asarray(value)
    assert isinstance(found.value, cp.LaunchError) and found.value.code == "E401"
    assert message in str(found.value)


@pytest.mark.parametrize(
    "dtype, suggestion",
    [
        ("f31", "did you mean `f32`?"),
        ("flaot32", "did you mean `float32`?"),
        (complex, "real and imaginary parts are two arrays"),
        ("zzz", "dtypes are bool_, i8, i16"),
        ("f4", "did you mean `f32`? names count bits, and NumPy's codes bytes"),
        ("u1", "did you mean `u8`?"),
        ("d", "did you mean `f64`?"),
    ],
)
def test_unknown_dtypes_are_refused(dtype: Any, suggestion: str):
    for make in (lambda: cp.asarray([1], dtype=dtype), lambda: cp.empty(3, dtype)):
        with pytest.raises(TypeError, match="E426: there is no dtype") as found:
            make()
        assert suggestion in str(found.value)


@pytest.mark.parametrize("dtype", ["b1", "i1", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8"])
def test_what_dtypes_of_numpy_print_are_dtypes(dtype: str):
    text = np.dtype(dtype).str
    assert cp.zeros(3, text).numpy().dtype == np.dtype(dtype)
