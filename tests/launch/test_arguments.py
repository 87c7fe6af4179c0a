"""What launches refuse, and that nothing is written then: arguments, layouts, overlaps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded, assert_same

T = cp.Tensor


@cp.cube
def copy(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i]


@cp.cube
def copy_f32(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i]


@cp.cube
def copy_lines(x: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i]


@cp.cube
def add_lines(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + y.flat[i]


@cp.cube
def copy_2d(x, out):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j]


@cp.cube
def fill(out, value: cp.i32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = value


def refused(code: str, kind: type[Exception], launch: Any, out: Guarded, *names: str) -> None:
    """The launch raises `code`, naming everything in `names`, and writes nothing."""
    with pytest.raises(kind) as caught:
        launch()
    error = caught.value
    assert isinstance(error, cp.LaunchError) and error.code == code, error
    for name in names:
        assert name in str(error), (name, str(error))
    assert out.is_untouched


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


# Refused


def test_wrong_dtype():
    out = Guarded(4)
    refused(
        "E402",
        TypeError,
        lambda: copy_f32.over(out.array)(numbers(4, dtype=np.float64), out.array),
        out,
        "copy_f32",
        "`x`",
        "f64",
        "f32",
        "astype",
    )


def test_wrong_dtype_of_a_type_variable():
    out = Guarded(4)
    from tests.launch.generic import scale

    refused(
        "E402",
        TypeError,
        lambda: scale.over(out.array)(numbers(4, dtype=np.float64), 2.0, out.array),
        out,
        "scale",
        "`out`",
        "f32",
        "f64",
    )
    ints = Guarded(4, np.int32)
    refused(
        "E402",
        TypeError,
        lambda: scale.over(ints.array)(numbers(4, dtype=np.int32), 2.0, ints.array),
        ints,
        "`x`",
        "i32",
        "f32 or f64",
    )


def test_big_endian():
    out = Guarded(4)
    refused(
        "E403",
        TypeError,
        lambda: copy.over(out.array)(numbers(4).astype(">f4"), out.array),
        out,
        "copy",
        "`x`",
        "big-endian",
        ">f4",
        "newbyteorder",
    )


def test_read_only_output():
    out = Guarded(4)
    view = out.array[:]
    view.flags.writeable = False
    refused(
        "E404",
        ValueError,
        lambda: copy.over(view)(numbers(4), view),
        out,
        "copy",
        "`out`",
        "read-only",
    )
    x = numbers(4)
    x.flags.writeable = False
    copy.over(out.array)(x, out.array)
    out.check(x)


@pytest.mark.parametrize("shift", [1, 3, -2])
def test_partial_overlap(shift: int):
    whole = numbers(64)
    before = whole.copy()
    x, out = whole[8:24], whole[8 + shift : 24 + shift]
    with pytest.raises(cp.LaunchError) as caught:
        copy.over(out)(x, out)
    assert caught.value.code == "E405"
    assert "`out`" in str(caught.value) and "`x`" in str(caught.value)
    assert_same(whole, before)


def test_overlap_of_different_dtypes():
    whole = np.zeros(16, np.float32)
    with pytest.raises(cp.LaunchError, match="E405"):
        copy.over(16)(whole.view(np.int32), whole)


def test_reversed_view_of_the_output():
    whole = numbers(8)
    with pytest.raises(cp.LaunchError, match="E405"):
        copy.over(8)(whole[::-1], whole)


def test_zero_stride_output():
    base = Guarded(4)
    out = np.lib.stride_tricks.as_strided(base.array, (3, 4), (0, 4))
    refused("E410", ValueError, lambda: copy.over(out)(numbers(3, 4), out), base, "copy", "`out`")
    window = np.lib.stride_tricks.as_strided(base.array, (3, 2), (4, 4))
    refused("E410", ValueError, lambda: copy.over(window)(numbers(3, 2), window), base, "`out`")


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(4, [("a", "f4")]),
        np.zeros(4, np.complex64),
        np.zeros(4, "datetime64[s]"),
        np.zeros(4, object),
        np.array(["a"] * 4),
        np.zeros(4, np.longdouble),
    ],
    ids=lambda a: str(a.dtype),
)
def test_other_dtypes(value: np.ndarray):
    out = Guarded(4)
    refused("E401", TypeError, lambda: copy.over(out.array)(value, out.array), out, "copy", "`x`")


ADVICE = {
    "complex64": "pass its real and imaginary parts as two arrays, x.real and x.imag",
    "object": "make it an array of numbers, as in x.astype(np.float64)",
    "datetime64[s]": "pass its numbers, as in x.view(np.int64)",
    "<U1": "kernels take numbers, and no text",
    "[('a', '<f4')]": "pass its fields as arrays, as in x['a']",
}


@pytest.mark.parametrize("dtype", ADVICE)
def test_advice_about_other_dtypes(dtype: str):
    kind = [("a", "<f4")] if dtype.startswith("[") else dtype
    value, out = np.zeros(4, kind), Guarded(4)
    what = f"`x` has dtype {dtype}, which no kernel takes"
    refused(
        "E401", TypeError, lambda: copy.over(out.array)(value, out.array), out, what, ADVICE[dtype]
    )


def test_complex_numbers():
    out = Guarded(4, np.int32)
    for value in (1j, np.complex64(1)):
        call = lambda v=value: fill.over(out.array)(out.array, v)
        parts = "pass its real and imaginary parts, value.real and value.imag"
        refused("E401", TypeError, call, out, "but a real number is expected", parts)
        with pytest.raises(cp.LaunchError, match=r"`x` .*which no kernel takes\n.*parts, x\.real"):
            copy.over(out.array)(value, out.array)


@pytest.mark.parametrize(
    "value", [[1.0, 2.0], {"a": 1}, object(), 1 + 2j, {1, 2}], ids=lambda v: type(v).__name__
)
def test_other_objects(value: Any):
    out = Guarded(4)
    refused("E401", TypeError, lambda: copy.over(out.array)(value, out.array), out, "copy", "`x`")


def test_a_number_for_a_tensor():
    out = Guarded(4)
    refused(
        "E401",
        TypeError,
        lambda: copy_f32.over(out.array)(1.0, out.array),
        out,
        "`x` is a float, but a tensor is expected",
        "the order of the arguments is (x, out)",
    )


def test_a_tensor_for_a_number():
    out = Guarded(4, np.int32)
    refused("E417", TypeError, lambda: fill.over(out.array)(out.array, numbers(4)), out, "`value`")


def test_wrong_rank():
    out = Guarded((1, 4))
    with pytest.raises(cp.CompileError, match="E104.*`x` has rank 1.*2 indices"):
        copy_2d.over(out.array)(numbers(4), out.array)
    assert out.is_untouched


def test_unaligned_elements():
    out = Guarded(4)
    raw = np.zeros(20, np.uint8)[1:17].view(np.float32)
    refused("E414", ValueError, lambda: copy.over(out.array)(raw, out.array), out, "`x`", "copy")
    record = np.zeros(4, [("a", "u1"), ("b", "f4")])["b"]
    refused("E414", ValueError, lambda: copy.over(out.array)(record, out.array), out, "`x`")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {}),
        ((1, 2, 3), {}),
        ((1, 2), {"x": 3}),
        ((1,), {"output": 2}),
    ],
)
def test_arguments_that_do_not_match(args: Any, kwargs: Any):
    with pytest.raises(cp.LaunchError, match="E406.*\n.*copy"):
        copy.over(4)(*args, **kwargs)


def test_no_grid():
    with pytest.raises(cp.LaunchError, match=r"E409(.|\n)*\.over") as caught:
        copy(numbers(4), numbers(4))
    assert isinstance(caught.value, TypeError)


def test_a_refused_launch_is_refused_again():
    """Also after a good launch of the same metadata (reliability, class 11)."""
    whole = numbers(64)
    out = np.zeros(16, np.float32)
    launch = copy.over(16)
    for _ in range(3):
        launch(whole[8:24], out)
        launch(whole[8:24], out)
        with pytest.raises(cp.LaunchError, match="E405"):
            launch(whole[8:24], whole[9:25])


# Legal


def test_the_same_array_twice():
    for kernel, args in ((copy, 1), (add_lines, 2)):
        out = Guarded(100)
        out.array[:] = numbers(100)
        kernel.over(out.array)(*[out.array] * args, out.array)
        out.check(numbers(100) * args)


@pytest.mark.parametrize("kernel", [copy, copy_lines])
def test_interleaved_views(kernel: Any):
    out = Guarded((50, 2))
    out.array[:, 0] = numbers(50)
    kernel.over(50)(out.array[:, 0], out.array[:, 1])
    out.check(np.repeat(numbers(50), 2).reshape(50, 2))


def layouts() -> dict[str, Any]:
    """Views of f32 arrays whose elements are all different."""
    base = numbers(2048)
    return {
        "empty": base[:0],
        "empty 2-d": base[:12].reshape(3, 4)[:, :0],
        "0-d": base[5:6].reshape(()),
        "one": base[:1],
        "plain": base[:1000],
        "offset": base[3:1000],
        "reversed": base[999::-1],
        "strided": base[1:1000:3],
        "negative stride": base[1000:0:-3],
        "matrix": base[:391].reshape(17, 23),
        "transposed": base[:391].reshape(17, 23).T,
        "column": base[:391].reshape(17, 23)[:, 5],
        "row": base[:391].reshape(17, 23)[5],
        "sliced": base[:391].reshape(17, 23)[2:9, 3:20],
        "wide": base[:2048].reshape(32, 64)[:, 16:48],
        "flipped rows": base[:391].reshape(17, 23)[::-1],
        "flipped columns": base[:391].reshape(17, 23)[:, ::-1],
        "broadcast rows": np.broadcast_to(base[:23], (17, 23)),
        "broadcast columns": np.broadcast_to(base[:17, None], (17, 23)),
        "fortran": np.asfortranarray(base[:391].reshape(17, 23)),
        "thin": base[:17].reshape(17, 1),
        "3-d": base[:210].reshape(5, 6, 7),
        "3-d permuted": base[:210].reshape(5, 6, 7).transpose(1, 2, 0),
        "3-d strided": base[:240].reshape(5, 6, 8)[::2, 1:4, ::2],
        "5-d": base[:48].reshape(2, 3, 1, 4, 2),
        "last of one": base[:40].reshape(20, 2)[:, :1],
    }


@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize(
    "kernel", [copy, copy_lines, copy_lines.configure(line_size=4)], ids=["scalar", "auto", "4"]
)
def test_layouts_of_inputs(name: str, kernel: Any):
    x = layouts()[name]
    for offset in (0, 1):
        out = Guarded(x.shape, offset=offset)
        kernel.over(out.array)(x, out.array)
        out.check(x)


@pytest.mark.parametrize("name", [n for n in layouts() if "broadcast" not in n])
@pytest.mark.parametrize("kernel", [copy, copy_lines], ids=["scalar", "lines"])
def test_layouts_of_outputs(name: str, kernel: Any):
    """Every element of the view is written, and nothing else of what it is a view of."""
    view = layouts()[name]
    base = view if view.base is None else view.base
    before, where = base.copy(), np.zeros(base.size, bool)
    where[view.astype(int).ravel()] = True
    x = np.asarray(-1 - numbers(*view.shape))
    kernel.over(view)(x, view)
    assert_same(view, x)
    assert_same(base.ravel()[~where[: base.size]], before.ravel()[~where[: base.size]])


@pytest.mark.parametrize("name", [n for n, x in layouts().items() if x.ndim == 2])
def test_two_indices(name: str):
    x = layouts()[name]
    out = Guarded(x.shape)
    copy_2d.over(out.array)(x, out.array)
    out.check(x)


DTYPES = (
    "bool",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("kernel", [copy, copy_lines], ids=["scalar", "lines"])
def test_every_dtype_is_copied(dtype: Any, kernel: Any):
    for count in (1, 63, 64, 1000):
        bits = np.random.default_rng(count).integers(
            0, 256, count * np.dtype(dtype).itemsize, np.uint8
        )
        x = bits.view(dtype) if dtype != "bool" else bits > 99
        out = Guarded(count, dtype, offset=count % 3)
        kernel.over(out.array)(x, out.array)
        assert out.array.tobytes() == x.tobytes()


def test_types_are_comptime():
    """Those of NumPy have the attributes of arrays; those of CubePy are dataclasses."""

    @cp.cube
    def convert(out, kind, more):
        out[0] = kind(out[1]) + more[0](out[1])

    single = float(np.float32(2.7))
    for kinds, value in (
        ((cp.f32, np.float32), single),
        ((cp.i8, np.int8, int), 2.0),
        ((cp.f64, np.float64, float), 2.7),
    ):
        for kind in kinds:
            out = np.array([0.0, 2.7])
            for _ in range(4):
                convert[1, 1](out, kind, (kind,))
            assert out[0] == value + value
    refused("E401", TypeError, lambda: copy_f32.over(4)(np.float32, out), Guarded(4), "`x`", "type")


def test_keywords_and_defaults():
    @cp.cube
    def affine(
        x,
        out,
        scale: cp.f32 = 2.0,  # pyright: ignore[reportArgumentType]
        *,
        shift: cp.f32 = 1.0,  # pyright: ignore[reportArgumentType]
        negate: cp.Comptime[bool] = False,
    ):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            y = x.flat[i] * scale + shift
            out.flat[i] = -y if negate else y

    x = numbers(10)
    for kwargs, expected in (
        ({}, 2 * x + 1),
        ({"scale": 3.0}, 3 * x + 1),
        ({"shift": 5, "negate": True}, -(2 * x + 5)),
    ):
        out = Guarded(10)
        affine.over(out.array)(x=x, out=out.array, **kwargs)
        out.check(expected)


@pytest.mark.slow
def test_more_elements_than_32_bits_count():
    x = np.zeros(2**31 + 2**27 + 5, np.uint8)

    @cp.cube
    def mark(out: cp.Lines[cp.u8]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = out.flat[i] + 7

    mark.over(x)(x)
    fill.over(x[2**31 - 3 :])(x[2**31 - 3 :], 9)
    assert x[0] == x[2**31 - 4] == 7 and x[2**31] == x[-1] == 9
    assert int(x[: 2**31 - 3].min()) == 7 and int(x[2**31 - 3 :].min()) == 9


@pytest.mark.parametrize("value", [None, "a", (1.0, 2.0), lambda: 1.0])
@pytest.mark.parametrize("annotation", [float, int, bool, cp.f32])
def test_annotated_numbers_are_numbers(annotation: Any, value: Any):
    def takes(v, out):
        out[0] = 5 if v is None else 9

    takes.__annotations__ = {"v": annotation}
    out = np.zeros(1)
    with pytest.raises(cp.LaunchError, match="E401.*`v` is .*, but a number is expected"):
        cp.cube(takes)[1, 1](value, out)
    assert out[0] == 0


def test_mappings_are_no_arguments():
    @cp.cube
    def takes(x, **more):
        x[0] = 1

    with pytest.raises(cp.LaunchError, match=r"kernels take no `\*\*` parameters"):
        takes[1, 1](np.zeros(1), a=3)
