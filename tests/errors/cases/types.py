"""Types of values: mixed, narrowed, changed; literals; lines."""

import numpy as np

import cubepy as cp
from tests.errors.case import case, floats, integers


@case
def unsigned_with_signed():
    @cp.cube
    def kernel(a, b, out):
        out[0] = a[0] + b[0]  # here

    kernel[1, 1](np.ones(4, np.uint64), np.ones(4, np.int32), floats())


@case
def bits_of_a_float():
    @cp.cube
    def kernel(x):
        x[0] = x[0] & 1  # here

    kernel[1, 1](floats())


@case
def shift_of_a_float():
    @cp.cube
    def kernel(x):
        x[0] = x[0] << 2  # here

    kernel[1, 1](floats())


@case
def whole_tensors_added():
    @cp.cube
    def kernel(x, y, out):
        out[0] = x + y  # here

    kernel[1, 1](floats(), floats(), floats())


@case
def tensor_compared():
    @cp.cube
    def kernel(x):
        if x > 0:  # here
            x[0] = 0

    kernel[1, 1](floats())


@case
def function_of_a_tensor():
    @cp.cube
    def kernel(x, out):
        out[0] = cp.exp(x)  # here

    kernel[1, 1](floats(), floats())


@case
def none_in_arithmetic():
    @cp.cube
    def kernel(x):
        start = None
        x[0] = x[0] + start  # here

    kernel[1, 1](floats())


@case
def tuple_in_arithmetic():
    @cp.cube
    def kernel(x):
        x[0] = x.shape + 1  # here

    kernel[1, 1](floats())


@case
def literal_too_large_for_a_value():
    @cp.cube
    def kernel(x):
        x[0] = x[0] + 300  # here

    kernel[1, 1](np.ones(4, np.uint8))


@case
def literal_too_large_for_a_store():
    @cp.cube
    def kernel(x):
        x[0] = 3_000_000_000  # here

    kernel[1, 1](integers())


@case
def negative_literal_for_unsigned():
    @cp.cube
    def kernel(x):
        x[0] = -1  # here

    kernel[1, 1](np.ones(4, np.uint32))


@case
def literal_larger_than_any_integer():
    @cp.cube
    def kernel(x):
        x[0] = x[0] + 10**30  # here

    kernel[1, 1](integers())


@case
def index_larger_than_any_integer():
    @cp.cube
    def kernel(x):
        x[2**70] = 1  # here

    kernel[1, 1](floats())


@case
def condition_on_a_line():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32]):
        v = x[0]
        if v > 0:  # here
            x[0] = -v

    kernel.configure(line_size=4)[1, 1](floats())


@case
def while_on_a_line():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32]):
        v = x[0]
        while v < 4:  # here
            v = v + 1

    kernel.configure(line_size=4)[1, 1](floats())


@case
def and_of_lines():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32]):
        v = x[0]
        x[0] = cp.where(v > 0 and v < 1, v, 0)  # here

    kernel.configure(line_size=4)[1, 1](floats())


@case
def condition_on_a_tensor():
    @cp.cube
    def kernel(x):
        if x:  # here
            x[0] = 0

    kernel[1, 1](floats())


@case
def float_stored_into_integers():
    @cp.cube
    def kernel(x, out):
        out[0] = x[0] / 2  # here

    kernel[1, 1](floats(), integers())


@case
def float_literal_stored_into_integers():
    @cp.cube
    def kernel(out):
        out[0] = 0.5  # here

    kernel[1, 1](integers())


@case
def tensor_stored_into_an_element():
    @cp.cube
    def kernel(x, out):
        out[0] = x  # here

    kernel[1, 1](floats(), floats())


@case
def line_stored_into_an_element():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32], out):
        out[0] = x[0]  # here

    kernel.configure(line_size=4)[1, 1](floats(), floats())


@case
def two_types_on_two_paths():
    @cp.cube
    def kernel(x, out):
        if x[0] > 0:
            value = (x[0], x[1])
        else:
            value = x[0]
        out[0] = value  # here

    kernel[1, 1](floats(), floats())


@case
def signed_and_unsigned_on_two_paths():
    @cp.cube
    def kernel(x, flag: cp.i32):
        value = x[0]
        if flag > 0:
            value = flag
        x[0] = value  # here

    kernel[1, 1](np.ones(4, np.uint64), 1)


@case
def wider_at_the_end_of_an_iteration():
    @cp.cube
    def kernel(x):
        h = x[0]
        for k in range(4):
            h = h * 31 + k  # here
        x[0] = h

    kernel[1, 1](np.ones(4, np.uint32))


@case
def number_becomes_text():
    @cp.cube
    def kernel(x):
        state = 0
        if x[0] > 0:
            state = "positive"  # here
        x[0] = state

    kernel[1, 1](floats())


@case
def none_becomes_a_number():
    @cp.cube
    def kernel(x):
        best = None
        for i in range(x.size):
            if best is None or x[i] > best:
                best = x[i]  # here
        x[0] = best

    kernel[1, 1](floats())


@case
def view_becomes_another_tensor():
    @cp.cube
    def kernel(a, b, out):
        source = a
        if out[0] > 0:
            source = b  # here
        out[0] = source[0]

    kernel[1, 1](floats(), floats(), floats())


@case
def float_as_an_index():
    @cp.cube
    def kernel(x):
        x[cp.ABSOLUTE_POS / 2] = 1  # here

    kernel[1, 1](floats())


@case
def float_bound_of_a_range():
    @cp.cube
    def kernel(x):
        for i in range(x.size / 2):  # here
            x[i] = 0

    kernel[1, 1](floats())


@case
def conversion_of_a_tensor():
    @cp.cube
    def kernel(x, out):
        out[0] = cp.i32(x)  # here

    kernel[1, 1](floats(), integers())


@case
def float_for_an_annotated_integer():
    @cp.cube
    def kernel(x, out):
        count: cp.i32 = x[0]  # here
        out[0] = count

    kernel[1, 1](floats(), integers())


@case
def misspelt_annotation_of_a_local():
    @cp.cube
    def kernel(x):
        total: cp.float32 = 0.0  # here
        x[0] = total

    kernel[1, 1](floats())


@case
def wrong_number_of_targets():
    @cp.cube
    def kernel(x):
        rows, columns = x.shape  # here
        x[0] = rows * columns

    kernel[1, 1](floats())


@case
def unpack_a_number():
    @cp.cube
    def kernel(x):
        a, b = x[0]  # here
        x[0] = a

    kernel[1, 1](floats())


@case
def line_widths_differ():
    @cp.cube
    def kernel(x):
        a = cp.load(x, 0, line=4)
        b = cp.load(x, 0, line=2)
        cp.store(x, 0, a + b)  # here

    kernel[1, 1](floats())


@case
def lane_outside_the_line():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32], out):
        out[0] = x[0][4]  # here

    kernel.configure(line_size=4)[1, 1](floats(), floats())


@case
def bitcast_to_another_size():
    @cp.cube
    def kernel(x, out):
        out[0] = cp.bitcast(x[0], cp.i64)  # here

    kernel[1, 1](floats(), integers())


@case
def line_of_a_runtime_width():
    @cp.cube
    def kernel(x):
        v = cp.load(x, 0, line=x.size)  # here
        x[0] = v[0]

    kernel[1, 1](floats())


@case
def number_or_none():
    @cp.cube
    def kernel(x):
        v = 1 if x[0] > 0 else None  # here
        x[1] = v

    kernel[1, 1](floats())


@case
def signed_or_unsigned():
    @cp.cube
    def kernel(x, signed, unsigned):
        i = cp.ABSOLUTE_POS
        x[i] = signed[i] if x[i] > 0 else unsigned[i]  # here

    kernel[1, 1](floats(), np.ones(4, np.int64), np.ones(4, np.uint64))


@case
def one_tensor_or_another():
    @cp.cube
    def kernel(a, b):
        chosen = a if a[0] > 0 else b  # here
        chosen[0] = 1

    kernel[1, 1](floats(), floats())


@case
def counter_in_a_sum_of_i32():
    @cp.cube
    def kernel(x):
        s = x[0]
        for j in range(x.shape[0]):
            s += j  # here
        x[0] = s

    kernel[1, 1](integers())


@case
def tensors_compared_by_identity():
    @cp.cube
    def kernel(x, out):
        if x is not out:  # here
            out[0] = x[0]

    kernel[1, 1](floats(), floats())


@case
def row_of_a_tensor_unpacked():
    @cp.cube
    def kernel(x, out):
        a, b = x[0]  # here
        out[0] = a + b

    kernel[1, 1](np.ones((4, 2), np.float32), floats())
