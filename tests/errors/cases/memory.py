"""Tensors, shared memory, barriers, planes, and what a target does not have."""

import numpy as np

import cubepy as cp
from tests.errors.case import case, floats, integers


@case
def too_many_indices():
    @cp.cube
    def kernel(x):
        x[0, 0, 0] = 1  # here

    kernel[1, 1](floats(4, 4))


@case
def too_few_indices_in_a_store():
    @cp.cube
    def kernel(x):
        x[0] = 1  # here

    kernel[1, 1](floats(4, 4))


@case
def too_few_indices_in_arithmetic():
    @cp.cube
    def kernel(x, out):
        out[0] = x[0] * 2  # here

    kernel[1, 1](floats(4, 4), floats())


@case
def number_indexed():
    @cp.cube
    def kernel(x):
        value = x[0]
        x[0] = value[0]  # here

    kernel[1, 1](floats())


@case
def scalar_argument_indexed():
    @cp.cube
    def kernel(x, alpha: cp.f32):
        x[0] = alpha[0]  # here

    kernel[1, 1](floats(), 2.0)


@case
def negative_index():
    @cp.cube
    def kernel(x):
        x[0] = x[-1]  # here

    kernel[1, 1](floats())


@case
def text_as_an_index():
    @cp.cube
    def kernel(x):
        x["first"] = 1  # here

    kernel[1, 1](floats())


@case
def mask_as_an_index():
    @cp.cube
    def kernel(x):
        x[x[0] > 0] = 1  # here

    kernel[1, 1](floats())


@case
def item_of_a_tuple_changed():
    @cp.cube
    def kernel(x):
        weights = (1, 2, 3)
        weights[0] = 5  # here
        x[0] = weights[0]

    kernel[1, 1](floats())


@case
def lane_of_a_line_changed():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32]):
        v = x[0]
        v[0] = 1.0  # here
        x[0] = v

    kernel.configure(line_size=4)[1, 1](floats())


@case
def slice_stored():
    @cp.cube
    def kernel(x):
        x[0:4] = 0  # here

    kernel[1, 1](floats())


@case
def slice_with_a_negative_step():
    @cp.cube
    def kernel(x, out):
        backwards = x[::-1]  # here
        out[0] = backwards[0]

    kernel[1, 1](floats(), floats())


@case
def two_indices_of_flat():
    @cp.cube
    def kernel(x):
        x.flat[0, 0] = 1  # here

    kernel[1, 1](floats(4, 4))


@case
def shared_memory_of_a_runtime_shape():
    @cp.cube
    def kernel(x):
        tile = cp.shared(x.shape[0], cp.f32)  # here
        tile[0] = x[0]

    kernel[1, 1](floats())


@case
def shared_memory_without_a_dtype():
    @cp.cube
    def kernel(x):
        tile = cp.shared((4, 4))  # here
        tile[0, 0] = x[0]

    kernel[1, 1](floats())


@case
def shared_memory_of_no_dtype():
    @cp.cube
    def kernel(x):
        tile = cp.shared((4, 4), "float99")  # here
        tile[0, 0] = x[0]

    kernel[1, 1](floats())


@case
def barrier_in_a_divergent_branch():
    @cp.cube
    def kernel(x):
        if cp.UNIT_POS < 4:
            x[cp.UNIT_POS] = 0
            cp.sync_cube()  # here
        x[cp.UNIT_POS] += 1

    kernel[1, 8](floats())


@case
def barrier_after_a_data_dependent_break():
    @cp.cube
    def kernel(x):
        for k in range(8):
            if x[cp.UNIT_POS] > k:
                break
            cp.sync_cube()  # here

    kernel[1, 8](floats())


@case
def slice_without_a_lane():
    @cp.cube
    def kernel(x: cp.Lines[cp.f32]):
        v = x[0]
        x[0] = v[4:6][0]  # here

    kernel.configure(line_size=4)[1, 1](floats())


@case
def plane_operation_in_a_divergent_branch():
    @cp.cube
    def kernel(x):
        if cp.UNIT_POS_PLANE < 4:
            x[cp.UNIT_POS] = cp.plane_sum(x[cp.UNIT_POS])  # here

    kernel.configure(plane_dim=8)[1, 8](floats())


@case
def lane_outside_the_plane():
    @cp.cube
    def kernel(x):
        x[0] = cp.plane_shuffle(x[0], 16)  # here

    kernel[1, 32](floats())


@case
def sum_of_a_warp_in_a_plane_of_one():
    @cp.cube
    def kernel(x):
        v = x[cp.UNIT_POS]
        for mask in (16, 8, 4, 2, 1):
            v += cp.plane_shuffle_xor(v, mask)  # here
        x[0] = v

    kernel[1, 32](floats())


@case
def atomic_on_a_value():
    @cp.cube
    def kernel(x):
        cp.atomic.add(x[0], 1.0)  # here

    kernel[1, 1](floats())


@case
def atomic_without_a_value():
    @cp.cube
    def kernel(x):
        cp.atomic.add(x, 0)  # here

    kernel[1, 1](floats())


@case
def atomic_bits_of_floats():
    @cp.cube
    def kernel(x):
        cp.atomic.or_(x, 0, 1)  # here

    kernel[1, 1](floats())


@case
def atomic_sum_of_bools():
    @cp.cube
    def kernel(x):
        cp.atomic.add(x, 0, True)  # here

    kernel[1, 1](np.zeros(4, bool))


@case
def load_of_a_number():
    @cp.cube
    def kernel(x):
        x[0] = cp.load(x[0], 0)  # here

    kernel[1, 1](floats())


@case
def fence_of_all_cubes_on_metal():
    @cp.cube
    def kernel(x, count):
        x[cp.CUBE_POS] = 1.0
        cp.sync_storage()  # here
        cp.atomic.add(count, 0, 1)

    kernel.inspect("f32[8]", "i32[1]", target="metal")


@case
def double_precision_on_metal():
    @cp.cube
    def kernel(x):
        x[0] = x[0] * 2

    kernel.inspect("f64[8]", target="metal")  # here


@case
def checked_index_out_of_bounds():
    @cp.cube
    def kernel(x):
        x[cp.ABSOLUTE_POS + 1] = 0  # here

    kernel.configure(checked=True)[1, 8](floats())


@case
def checked_division_by_zero():
    @cp.cube
    def kernel(x):
        x[0] = x[0] // (x[1] - 1)  # here

    kernel.configure(checked=True)[1, 1](integers())


@case
def checked_shift_by_the_width():
    @cp.cube
    def kernel(x, n: cp.i32):
        x[0] = x[0] << n  # here

    kernel.configure(checked=True)[1, 1](integers(), 32)


@case
def checked_quotient_of_the_least_integer():
    @cp.cube
    def kernel(x):
        x[0] = (x[0] << 31) // (x[1] - 2)  # here

    kernel.configure(checked=True)[1, 1](integers())


@case
def checked_assert_fails():
    @cp.cube
    def kernel(x):
        assert x[0] > 1, "x begins with more than 1"  # here

    kernel.configure(checked=True)[1, 1](floats())


@case
def race_between_units():
    @cp.cube
    def kernel(x):
        x[0] = cp.UNIT_POS  # here

    kernel.configure(device="interpreter")[1, 8](floats())


@case
def shared_memory_read_before_it_is_written():
    @cp.cube
    def kernel(x):
        tile = cp.shared(8, cp.f32)
        x[0] = tile[0]  # here

    kernel.configure(device="interpreter")[1, 1](floats())


@case
def units_wait_at_different_places():
    @cp.cube
    def kernel(x):
        if x[cp.UNIT_POS] > 0.5:
            cp.sync_cube()  # here

    kernel.configure(device="interpreter")[1, 8](np.arange(8, dtype=np.float32) / 8)


@case
def flat_index_out_of_bounds_on_the_interpreter():
    @cp.cube
    def kernel(x):
        x.flat[cp.ABSOLUTE_POS + 1] = 0  # here

    kernel.configure(device="interpreter")[1, 8](floats())


@case
def too_large_arrays_of_units():
    @cp.cube
    def kernel(x):
        held = cp.local(1 << 20, cp.f32)  # here
        held[cp.UNIT_POS] = x[cp.UNIT_POS]
        cp.sync_cube()
        x[cp.UNIT_POS] = held[cp.UNIT_POS]

    kernel[1, 32](floats(32))


@case
def nothing_indexed():
    @cp.cube
    def kernel(x, bias):
        i = cp.ABSOLUTE_POS
        x[i] += bias[i]  # here

    kernel[1, 8](floats(), None)


@case
def a_text_indexed_at_run_time():
    letters = "abc"

    @cp.cube
    def kernel(x):
        i = cp.ABSOLUTE_POS
        x[i] = ord(letters[i])  # here

    kernel[1, 3](floats())


@case
def key_known_at_run_time():
    weights = {0: 1, 1: 2}

    @cp.cube
    def kernel(x):
        i = cp.ABSOLUTE_POS
        x[i] = weights[i]  # here

    kernel[1, 2](floats())


@case
def negative_shape():
    @cp.cube
    def kernel(x):
        held = cp.local(-1, cp.f32)  # here
        x[0] = held[0]

    kernel[1, 1](floats())


@case
def captured_list_changed():
    seen: list[int] = []

    @cp.cube
    def kernel(x):
        seen.append(1)  # here
        x[0] = len(seen)

    kernel[1, 1](floats())


@case
def captured_dict_changed():
    seen: dict[str, int] = {}

    @cp.cube
    def kernel(x):
        seen.update(a=1)  # here
        x[0] = len(seen)

    kernel[1, 1](floats())


@case
def index_beyond_a_local():
    @cp.cube
    def kernel(x):
        held = cp.local((2, 4), cp.f32, fill=0)
        held[1, 4] = 1  # here
        x[0] = held[0, 0]

    kernel[1, 1](floats())
