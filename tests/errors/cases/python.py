"""Python that is no part of the kernel language."""

import math

import numpy as np

import cubepy as cp
from tests.errors.case import case, floats


@case
def try_except():
    @cp.cube
    def kernel(x):
        try:  # here
            x[0] = 1 / x[1]
        except ZeroDivisionError:
            x[0] = 0

    kernel[1, 1](floats())


@case
def raise_statement():
    @cp.cube
    def kernel(x):
        if x.size == 0:
            return
        raise ValueError("no data")  # here

    kernel[1, 1](floats())


@case
def with_statement():
    @cp.cube
    def kernel(x):
        with open("log") as log:  # here
            log.write("started")

    kernel[1, 1](floats())


@case
def yield_statement():
    @cp.cube
    def kernel(x):
        for i in range(x.size):
            yield x[i]  # here

    kernel[1, 1](floats())


@case
def await_expression():
    @cp.cube
    async def kernel(x):  # here
        await x

    kernel[1, 1](floats())


@case
def global_statement():
    @cp.cube
    def kernel(x):
        global counter  # here
        counter = 1

    kernel[1, 1](floats())


@case
def nonlocal_statement():
    total = 0

    @cp.cube
    def kernel(x):
        nonlocal total  # here
        total += x[0]

    kernel[1, 1](floats())


@case
def class_in_a_kernel():
    @cp.cube
    def kernel(x):
        class Pair:  # here
            left = 1

        x[0] = Pair.left

    kernel[1, 1](floats())


@case
def import_in_a_kernel():
    @cp.cube
    def kernel(x):
        import math  # here

        x[0] = math.sqrt(x[0])

    kernel[1, 1](floats())


@case
def delete_a_name():
    @cp.cube
    def kernel(x):
        value = x[0]
        del value  # here

    kernel[1, 1](floats())


@case
def too_few_for_a_star():
    @cp.cube
    def kernel(x):
        first, second, *rest = (x[0],)  # here
        x[0] = first + second + len(rest)

    kernel[1, 1](floats())


@case
def starred_runtime_value():
    @cp.cube
    def kernel(x):
        x[0] = max(*x)  # here

    kernel[1, 1](floats())


@case
def comprehension_over_a_tensor():
    @cp.cube
    def kernel(x):
        x[0] = sum([v * v for v in x])  # here

    kernel[1, 1](floats())


@case
def comprehension_over_a_runtime_range():
    @cp.cube
    def kernel(x):
        x[0] = sum([x[i] for i in range(x.size)])  # here

    kernel[1, 1](floats())


@case
def set_of_values():
    @cp.cube
    def kernel(x):
        seen = {x[0], x[1]}  # here
        x[0] = len(seen)

    kernel[1, 1](floats())


@case
def dict_comprehension():
    @cp.cube
    def kernel(x):
        squares = {k: k * k for k in range(4)}  # here
        x[0] = squares[2]

    kernel[1, 1](floats())


@case
def dict_with_runtime_keys():
    @cp.cube
    def kernel(x):
        table = {x[0]: 1, x[1]: 2}  # here
        x[0] = table[0]

    kernel[1, 1](floats())


@case
def walrus_that_may_not_have_run():
    @cp.cube
    def kernel(x):
        if x[1] > 0 or (v := x[0]) > 1:
            x[0] = v  # here

    kernel[1, 1](floats())


@case
def matmul_operator():
    @cp.cube
    def kernel(a, b, out):
        out[0] = a @ b  # here

    kernel[1, 1](floats(), floats(), floats())


@case
def formatted_text_of_a_value():
    @cp.cube
    def kernel(x):
        name = f"{x:.3f}"  # here
        print(name)

    kernel[1, 1](floats())


@case
def text_method_on_a_number():
    @cp.cube
    def kernel(x):
        x[0] = x[0].upper()  # here

    kernel[1, 1](floats())


@case
def text_added_to_a_number():
    @cp.cube
    def kernel(x):
        print("value: " + x[0])  # here

    kernel[1, 1](floats())


@case
def runtime_recursion():
    @cp.cube
    def factorial(n):
        if n <= 1:
            return 1
        return n * factorial(n - 1)  # here

    @cp.cube
    def kernel(x):
        x[0] = factorial(cp.UNIT_POS)

    kernel[1, 1](floats())


@case
def loop_over_a_tensor_of_no_axes():
    @cp.cube
    def kernel(x):
        for v in x:  # here
            x[()] = v

    kernel[1, 1](np.zeros((), np.float32))


@case
def loop_over_a_number():
    @cp.cube
    def kernel(x):
        for i in x.size:  # here
            x[i] = 0

    kernel[1, 1](floats())


@case
def tuple_of_a_tensor():
    @cp.cube
    def kernel(x):
        x[0] = len(tuple(x))  # here

    kernel[1, 1](floats())


@case
def zip_with_values_of_the_unit():
    @cp.cube
    def kernel(x):
        for a, b in zip((x[0], x[1]), x):  # here
            x[2] = a + b

    kernel[1, 1](floats())


@case
def strict_zip_of_tensors():
    @cp.cube
    def kernel(x):
        for a, b in zip(x, x, strict=True):  # here
            x[2] = a + b

    kernel[1, 1](floats())


@case
def name_bound_in_a_loop_of_a_generator_expression():
    @cp.cube
    def kernel(x):
        x[0] = sum((last := v) for v in x) + last  # here

    kernel[1, 1](floats())


@case
def greatest_with_an_unknown_option():
    @cp.cube
    def kernel(x):
        x[0] = max(x, start=1)  # here

    kernel[1, 1](floats())


@case
def lambda_that_stores():
    @cp.cube
    def kernel(x):
        put = lambda i, v: x.__setitem__(i, v)  # here
        put(0, 1.0)

    kernel[1, 1](floats())


@case
def lambda_with_too_few_arguments():
    @cp.cube
    def kernel(x):
        mix = lambda a, b: a + b
        x[0] = mix(x[0])  # here

    kernel[1, 1](floats())


@case
def match_on_a_class():
    @cp.cube
    def kernel(x):
        match x[0]:
            case float():  # here
                x[0] = 1

    kernel[1, 1](floats())


@case
def builtin_that_needs_python_a_kernel():
    @cp.cube
    def kernel(x):
        x[0] = hash(x[0])  # here

    kernel[1, 1](floats())


@case
def numpy_call_on_values():
    import numpy as np

    @cp.cube
    def kernel(x):
        x[0] = np.linalg.norm(x[0])  # here

    kernel[1, 1](floats())


@case
def no_source():
    names = {"cp": cp}
    exec("def kernel(x): x[0] = 1", names)
    cp.cube(names["kernel"])[1, 1](floats())  # here


@case
def attribute_assignment():
    @cp.cube
    def kernel(x):
        x.size = 3  # here

    kernel[1, 1](floats())


@case
def complex_literal():
    @cp.cube
    def kernel(x):
        x[0] = x[0] * 2j  # here

    kernel[1, 1](floats())


@case
def loop_without_an_end():
    @cp.cube
    def kernel(x):
        while True:  # here
            x[0] += 1

    kernel[1, 1](floats())


@case
def loop_that_only_an_inner_break_leaves():
    @cp.cube
    def kernel(x):
        while True:  # here
            for k in range(3):
                if x[k] > 1:
                    break
            x[0] += 1

    kernel[1, 1](floats())


@case
def logarithm_to_the_base_2():
    @cp.cube
    def kernel(x):
        x[0] = math.log(x[0], 2)  # here

    kernel[1, 1](floats())


@case
def logarithm_to_a_base():
    @cp.cube
    def kernel(x):
        x[0] = math.log(x[0], x[1])  # here

    kernel[1, 1](floats())


@case
def reversed_zip():
    @cp.cube
    def kernel(x):
        for a, b in reversed(zip(x, x)):  # here
            x[2] = a + b

    kernel[1, 1](floats())


@case
def runtime_step_within_zip():
    @cp.cube
    def kernel(x):
        for k, v in zip(range(0, 9, x.size), x):  # here
            x[k] = v

    kernel[1, 1](floats())
