"""Names: misspelt, unset, captured; attributes; calls with wrong arguments; comptime."""

import random
import time
from datetime import datetime
from typing import NamedTuple

import numpy as np

import cubepy as cp
from tests.errors.case import case, floats


class Size(NamedTuple):
    height: float
    width: float


@case
def misspelt_name():
    @cp.cube
    def kernel(x, out):
        position = cp.ABSOLUTE_POS
        out[position] = x[positoin]  # here

    kernel[1, 1](floats(), floats())


@case
def misspelt_word_of_the_language():
    @cp.cube
    def kernel(x):
        x[cp.ABSOLUTE_POSITION] = 1  # here

    kernel[1, 1](floats())


@case
def misspelt_function():
    @cp.cube
    def kernel(x):
        cp.sync_cubes()  # here
        x[0] = 1

    kernel[1, 1](floats())


@case
def misspelt_attribute_of_a_tensor():
    @cp.cube
    def kernel(x):
        x[0] = x.shapes[0]  # here

    kernel[1, 1](floats())


@case
def method_of_numpy_arrays():
    @cp.cube
    def kernel(x):
        x[0] = x.sum()  # here

    kernel[1, 1](floats())


@case
def misspelt_attribute_of_a_line():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32], out):
        out[0] = x[0].summ()  # here

    kernel.configure(line_size=4)[1, 1](floats(), floats())


@case
def name_of_another_language():
    @cp.cube
    def kernel(x):
        x[threadIdx.x] = 1  # here

    kernel[1, 1](floats())


@case
def set_in_one_branch_only():
    @cp.cube
    def kernel(x):
        if x[0] > 0:
            sign = 1
        x[0] = sign  # here

    kernel[1, 1](floats())


@case
def set_in_a_loop_only():
    @cp.cube
    def kernel(x):
        for i in range(x.size):
            last = x[i]
        x[0] = last  # here

    kernel[1, 1](floats())


@case
def used_before_it_is_set():
    @cp.cube
    def kernel(x):
        x[0] = total  # here
        total = 1

    kernel[1, 1](floats())


@case
def augmented_before_it_is_set():
    @cp.cube
    def kernel(x):
        for i in range(x.size):
            total += x[i]  # here

    kernel[1, 1](floats())


@case
def captured_array():
    weights = cp.ones(4)

    @cp.cube
    def kernel(x):
        x[0] = x[0] * weights[0]  # here

    kernel[1, 1](floats())


@case
def helper_with_too_few_arguments():
    @cp.cube
    def blend(a, b, t):
        return a + (b - a) * t

    @cp.cube
    def kernel(x):
        x[0] = blend(x[0], x[1])  # here

    kernel[1, 1](floats())


@case
def builtin_with_too_many_arguments():
    @cp.cube
    def kernel(x):
        x[0] = cp.sqrt(x[0], x[1])  # here

    kernel[1, 1](floats())


@case
def builtin_with_an_unknown_keyword():
    @cp.cube
    def kernel(x):
        x[0] = cp.load(x, 0, default=1)  # here

    kernel[1, 1](floats())


@case
def dataclass_with_too_few_fields():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Point:
        x: float
        y: float

    @cp.cube
    def kernel(x):
        p = Point(x[0])  # here
        x[0] = p.x

    kernel[1, 1](floats())


@case
def missing_field_of_a_record():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Point:
        x: float
        y: float

    @cp.cube
    def kernel(x):
        p = Point(x[0], x[1])
        x[0] = p.z  # here

    kernel[1, 1](floats())


@case
def tensor_is_not_a_function():
    @cp.cube
    def kernel(x):
        x[0] = x(1)  # here

    kernel[1, 1](floats())


@case
def number_is_not_a_function():
    @cp.cube
    def kernel(x):
        scale = 3
        x[0] = scale(x[0])  # here

    kernel[1, 1](floats())


@case
def comptime_of_a_runtime_value():
    @cp.cube
    def kernel(x):
        n = cp.comptime(x.shape[0])  # here
        x[0] = n

    kernel[1, 1](floats())


@case
def unroll_a_runtime_range():
    @cp.cube
    def kernel(x):
        for i in cp.unroll(range(x.size)):  # here
            x[i] = 0

    kernel[1, 1](floats())


@case
def unroll_too_much():
    @cp.cube
    def kernel(x):
        for i in cp.unroll(range(1_000_000)):  # here
            x[i] = 0

    kernel[1, 1](floats())


@case
def runtime_value_for_a_comptime_parameter():
    @cp.cube
    def power(v, n: cp.Comptime[int]):
        return v**n

    @cp.cube
    def kernel(x):
        x[0] = power(x[0], cp.UNIT_POS)  # here

    kernel[1, 1](floats())


@case
def runtime_index_of_a_tuple():
    @cp.cube
    def kernel(x):
        weights = (0.25, x[0], 0.25)
        for k in range(3):
            x[k] *= weights[k]  # here

    kernel[1, 1](floats())


@case
def store_into_a_table():
    weights = np.ones(4, np.float32)

    @cp.cube
    def kernel(x):
        weights[0] = x[0]  # here

    kernel[1, 1](floats())


@case
def table_that_is_too_large():
    weights = np.ones(20_000, np.float32)

    @cp.cube
    def kernel(x):
        x[0] = weights[cp.UNIT_POS]  # here

    kernel[1, 1](floats())


@case
def table_of_text():
    words = np.array(["a", "b"])

    @cp.cube
    def kernel(x):
        x[0] = words[cp.UNIT_POS]  # here

    kernel[1, 1](floats())


@case
def static_assert_fails():
    @cp.cube
    def kernel(x, n: cp.Comptime[int]):
        cp.static_assert(n % 4 == 0, "n must be a multiple of 4")  # here
        x[0] = n

    kernel[1, 1](floats(), 6)


@case
def static_assert_on_a_runtime_value():
    @cp.cube
    def kernel(x):
        cp.static_assert(x.size > 0)  # here

    kernel[1, 1](floats())


@case
def comptime_division_by_zero():
    @cp.cube
    def kernel(x, n: cp.Comptime[int]):
        x[0] = 16 / n  # here

    kernel[1, 1](floats(), 0)


@case
def maximum_of_nothing():
    @cp.cube
    def kernel(x):
        x[0] = max(())  # here

    kernel[1, 1](floats())


@case
def minimum_of_a_number():
    @cp.cube
    def kernel(x):
        x[0] = min(x[0])  # here

    kernel[1, 1](floats())


@case
def kernel_returns_a_value():
    @cp.cube
    def kernel(x):
        return x[0] + 1  # here

    kernel[1, 1](floats())


@case
def helper_returns_on_some_paths():
    @cp.cube
    def sign(v):  # here
        if v > 0:
            return 1
        if v < 0:
            return -1

    @cp.cube
    def kernel(x):
        x[0] = sign(x[0])

    kernel[1, 1](floats())


@case
def helper_returns_different_shapes():
    @cp.cube
    def split(v):
        if v > 0:
            return v, v
        return v  # here

    @cp.cube
    def kernel(x):
        x[0] = split(x[0])

    kernel[1, 1](floats())


@case
def helper_returns_nothing_on_one_path():
    @cp.cube
    def positive(v):
        if v > 0:
            return v
        return  # here

    @cp.cube
    def kernel(x):
        x[0] = positive(x[0])

    kernel[1, 1](floats())


@case
def deep_chain_of_calls():
    @cp.cube
    def innermost(v):
        return v.size  # here

    @cp.cube
    def inner(v):
        return innermost(v)

    @cp.cube
    def middle(v):
        return inner(v)

    @cp.cube
    def outer(v):
        return middle(v)

    @cp.cube
    def kernel(x):
        x[0] = outer(x[0])

    kernel[1, 1](floats())


COUNT = 0


@case
def a_global_is_assigned():
    @cp.cube
    def kernel(x):
        COUNT += 1  # noqa: F823 # here
        x[0] = COUNT

    kernel[1, 1](floats())


@case
def random_number_of_python():
    @cp.cube
    def kernel(x):
        x[0] = random.random()  # here

    kernel[1, 1](floats())


@case
def random_number_of_numpy():
    @cp.cube
    def kernel(x):
        x[0] = np.random.rand()  # here

    kernel[1, 1](floats())


@case
def clock():
    @cp.cube
    def kernel(x):
        x[0] = time.time()  # here

    kernel[1, 1](floats())


@case
def clock_of_a_class():
    @cp.cube
    def kernel(x):
        x[0] = datetime.now().second  # here

    kernel[1, 1](floats())


@case
def prebuilt_function_inside():
    @cp.cube
    def kernel(x):
        x[0] = cp.kernels.sum(x)  # here

    kernel[1, 1](floats())


@case
def range_of_four_numbers():
    @cp.cube
    def kernel(x):
        for i in range(0, 1, 2, 3):  # here
            x[i] = 1

    kernel[1, 1](floats())


@case
def text_of_a_number():
    @cp.cube
    def kernel(x):
        print("x is " + str(x[0]))  # here

    kernel[1, 1](floats())


@case
def letters_of_an_attribute_swapped():
    @cp.cube
    def kernel(x):
        x[0] = x.shpae[0]  # here

    kernel[1, 1](floats())


@case
def missing_field_of_a_named_tuple():
    @cp.cube
    def kernel(x, size):
        x[0] = size.z  # here

    kernel[1, 1](floats(), Size(2.0, 3.0))


@case
def length_of_a_formatted_string():
    @cp.cube
    def kernel(x):
        x[0] = len(f"{x[0]}")  # here

    kernel[1, 1](floats())


@case
def method_of_a_formatted_string():
    @cp.cube
    def kernel(x):
        print(f"{x[0]}".upper())  # here

    kernel[1, 1](floats())


@case
def range_without_a_step():
    @cp.cube
    def kernel(x):
        for i in range(0, 4, 0):  # here
            x[i] = 0

    kernel[1, 1](floats())


@case
def name_like_one_of_python_that_kernels_do_not_call():
    @cp.cube
    def kernel(x):
        x[0] = vale  # here

    kernel[1, 1](floats())


@case
def product_of_rows():
    @cp.cube
    def kernel(m, out):
        out[0] = np.dot(m[0], m[1])  # here

    kernel[1, 1](floats(2, 2), floats())


@case
def mean_of_a_tensor():
    @cp.cube
    def kernel(x, out):
        out[0] = x.mean()  # here

    kernel[1, 1](floats(), floats())
