"""Launches that are refused: arguments, grids, targets, settings, prebuilt kernels."""

from typing import cast

import numpy as np

import cubepy as cp
from cubepy.ir.build import Builder
from tests.errors.case import case, floats, integers


@cp.cube
def scale(x, out, factor: cp.f32 = 2.0):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * factor


@cp.cube
def typed(x: cp.Tensor[cp.f32]):
    x[0] = 1


@cp.cube
def generic(x, n: cp.Comptime):
    x[0] = 1


@case
def no_grid():
    scale(floats(), floats())  # here


@case
def too_few_arguments():
    scale[1, 8](floats())  # here


@case
def unknown_keyword():
    scale[1, 8](floats(), floats(), scale=2.0)  # here


@case
def list_for_a_tensor():
    scale[1, 8]([1.0, 2.0], floats())  # here


@case
def none_for_a_tensor():
    typed[1, 8](None)  # here


@case
def wrong_dtype():
    typed[1, 8](np.ones(8))  # here


@case
def array_of_objects():
    scale[1, 8](np.array([None, 1]), floats())  # here


@case
def array_of_complex_numbers():
    scale[1, 8](np.ones(8, np.complex64), floats())  # here


@case
def number_for_a_tensor():
    typed[1, 8](1.0)  # here


@case
def big_endian():
    scale[1, 8](np.ones(8, ">f4"), floats())  # here


@case
def read_only_output():
    out = floats()
    out.flags.writeable = False
    scale[1, 8](floats(), out)  # here


@case
def overlapping_output():
    x = floats(16)
    scale[1, 8](x[:8], x[4:12])  # here


@case
def output_broadcast():
    out = np.lib.stride_tricks.as_strided(floats(), (8,), (0,))
    scale[1, 8](floats(), out)  # here


@case
def unaligned_array():
    raw = np.zeros(33, np.uint8)
    scale[1, 8](raw[1:].view(np.float32), floats())  # here


@case
def integer_argument_too_large():
    @cp.cube
    def fill(out, value: cp.u8):
        out[0] = value

    fill[1, 1](integers(), 300)  # here


@case
def array_for_a_number():
    scale[1, 8](floats(), floats(), floats())  # here


@cp.cube
def misspelled(x: "cp.Tensor[cp.float32]"):
    x[0] = 1


@cp.cube
def of_numpy(x, n: np.int32):
    x[0] = n


@cp.cube
def counted(x, n: cp.Comptime[int]):
    x[0] = n


@case
def unknown_name_in_an_annotation():
    misspelled[1, 8](floats())  # here


@case
def float_for_an_integer_of_numpy():
    of_numpy[1, 8](floats(), 2.5)  # here


@case
def float_for_a_comptime_integer():
    counted[1, 8](floats(), 2.5)  # here


@case
def text_for_a_number():
    scale[1, 8](floats(), floats(), "2.0")  # here


@case
def float_for_an_integer_parameter():
    @cp.cube
    def fill(out, value: cp.i32):
        out[0] = value

    fill[1, 1](integers(), 1.5)  # here


@case
def comptime_list():
    generic[1, 1](floats(), [1, 2])  # here


@case
def grid_of_one_number():
    scale[8](floats(), floats())  # here


@case
def grid_with_a_float():
    scale[8 / 2, 256](floats(), floats())  # here


@case
def negative_grid():
    scale[-1, 256](floats(), floats())  # here


@case
def cube_without_units():
    scale[1, 0](floats(), floats())  # here


@case
def grid_of_four_axes():
    scale[(1, 1, 1, 1), 256](floats(), floats())  # here


@case
def cube_too_large():
    scale[1, 1 << 20](floats(), floats())  # here


@case
def over_a_float():
    scale.over(10 / 2)(floats(), floats())  # here


@case
def over_an_unknown_item():
    scale.over(8, per="thread")(floats(), floats())  # here


@case
def line_size_too_large():
    scale.configure(line_size=1000)  # here


@case
def plane_of_no_units():
    scale.configure(plane_dim=0)  # here


@case
def unknown_device():
    scale.configure(device="gpu")[1, 8](floats(), floats())  # here


@case
def unknown_target():
    scale.inspect("f32[8]", "f32[8]", target="cuda:volta")  # here


@case
def unknown_stage():
    scale.inspect("f32[8]", "f32[8]", target="cpu", stage="ptx")  # here


@case
def unreadable_specification():
    scale.inspect("f32[8", "f32[8]")  # here


@case
def unknown_dtype_of_a_specification():
    scale.inspect("float33[8]", "f32[8]")  # here


@case
def unknown_value_of_a_setting():
    with cp.settings(opt_level=9):  # here
        pass


@case
def prebuilt_with_a_wrong_axis():
    cp.kernels.sum(floats(4, 4), axis=5)  # here


@case
def prebuilt_with_a_wrong_type():
    cp.kernels.sum("text")  # here


@case
def box_of_another_rank():
    cp.cuda.tensor_map("f32[64,64]", box=(64,))  # here


@case
def copy_of_another_shape():
    cp.zeros(4).copy_from(floats(5))  # here


@case
def copy_with_gaps():
    cp.zeros(4).copy_from(floats()[::2])  # here


@case
def copy_of_another_dtype():
    cp.zeros(8).copy_from(integers())  # here


COPY_IR = """
kernel @copy(%x: buffer<f32, global> = data x, %y: buffer<f32, global> = data y)
cube_dim 4 1 1 plane_dim 1 {
  %i = absolute_pos {axis = 'all'} : index
  %v = load %x, %i {type = f32} : f32
  store %y, %i, %v
  return
}
"""


@case
def ir_without_a_name():
    cp.from_ir(Builder().kernel("two words"))  # here


@case
def ir_for_another_layout():
    x = np.ones(8, np.float32)
    cp.from_ir(COPY_IR)[1](x[::2], x)  # here


@case
def no_valid_configuration():
    @cp.autotuned(space={"n": (1, 2)}, valid=lambda config, target, problem: False)
    def fill(out, *, config):
        out[:] = config["n"]

    fill(np.zeros(3))  # here


@case
def missing_comptime_argument():
    @cp.cube
    def kernel(x, n: cp.Comptime[int]):
        x[0] = n

    kernel[1, 1](floats())  # here


@case
def misspelt_keyword():
    @cp.cube
    def kernel(x, out):
        out[0] = x[0]

    kernel[1, 1](floats(), output=floats())  # here


@case
def epilogue_without_an_index():
    cp.kernels.matmul(floats(2, 2), floats(2, 2), epilogue=lambda v: v)  # here


@case
def function_that_gives_nothing():
    def increased(v):  # here
        v = v + 1

    cp.kernels.map(increased, floats())


@case
def array_of_nothing():
    cp.asarray(None)  # here


@case
def misspelt_dtype():
    cp.asarray([1], dtype="f31")  # here


@case
def misspelt_setting():
    scale.configure(chekced=True)  # here


@case
def misspelt_setting_of_the_process():
    with cp.settings(chekced=True):  # here
        pass


@case
def unknown_level_of_tuning():
    with cp.tuning(level="x"):  # here
        pass


@case
def class_as_a_kernel():
    @cp.cube  # here
    class Kernel:
        pass


@case
def ragged_list():
    cp.asarray([[1], [2, 3]])  # here


@case
def negative_extent():
    cp.empty((2, -1))  # here


@case
def shape_of_a_float():
    cp.zeros(cast("int", 2.5))  # here


@case
def code_of_a_dtype():
    cp.asarray([1], dtype="i4")  # here


@case
def grid_over_a_name():
    scale.over("out")  # here


@case
def grid_over_a_float():
    scale.over(5.0)  # here
