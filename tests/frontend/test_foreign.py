"""Words of other kernel languages are answered with CubePy's, and errors name the user's words."""

import types
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend.foreign import FOREIGN
from cubepy.lang import atomic, builtins

tl: Any = types.ModuleType("triton.language")
threadIdx: Any


@cp.cube
def numba_barrier(x):
    cp.syncthreads()  # pyright: ignore[reportAttributeAccessIssue]


@cp.cube
def numba_grid(x):
    x[0] = cp.grid(1)  # pyright: ignore[reportAttributeAccessIssue]


@cp.cube
def cuda_position(x):
    x[0] = threadIdx.x  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


@cp.cube
def opencl_position(x):
    x[0] = get_global_id(0)  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


@cp.cube
def triton_position(x):
    x[0] = tl.program_id(0)


@pytest.mark.parametrize(
    ("kernel", "answer"),
    [
        (numba_barrier, "cp.sync_cube()"),
        (numba_grid, "cp.ABSOLUTE_POS"),
        (cuda_position, "cp.UNIT_POS_X"),
        (opencl_position, "cp.ABSOLUTE_POS_X"),
        (triton_position, "cp.CUBE_POS_X"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_words_of_other_languages_are_translated(kernel: Any, answer: str):
    with pytest.raises(cp.CompileError) as raised:
        kernel[1, 1](np.zeros(1))
    assert answer in str(raised.value).splitlines()[-1]


@pytest.mark.parametrize("answer", sorted(set(FOREIGN.values())))
def test_answers_name_what_there_is(answer: str):
    names = {*builtins.BUILTINS, *builtins.POSITIONS, "cube", "Comptime", "atomic"}
    for word in answer.replace("(", " ").replace(",", " ").replace(";", " ").split():
        if word.startswith(("cp.", "@cp.")):
            first, _, rest = word.lstrip("@").removeprefix("cp.").rstrip("`.").partition(".")
            assert first in names
            assert first != "atomic" or rest in atomic.NAMES


def test_negative_literals_are_masks_of_unsigned_numbers():
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        out[i, 0] = x[i] & ~3
        out[i, 1] = -1 ^ x[i]
        out[i, 2] = x[i] | -(1 << 7)
        v = x[i]
        v &= ~(1 << 4)
        out[i, 3] = v

    for dtype in (np.uint8, np.uint32, np.uint64):
        x = np.random.default_rng().integers(0, np.iinfo(dtype).max, 50, dtype, endpoint=True)
        out = np.zeros((50, 4), dtype)
        kernel[50, 1](x, out)
        wanted = [[v & ~3, -1 ^ v, v | -(1 << 7), v & ~(1 << 4)] for v in x.tolist()]
        bits = 1 << 8 * x.itemsize
        assert out.tolist() == [[w % bits for w in row] for row in wanted]


def test_masks_of_more_bits_than_the_number_has_are_refused():
    @cp.cube
    def kernel(x):
        x[0] = x[0] & -(1 << 33)

    with pytest.raises(cp.CompileError, match="E203"):
        kernel[1, 1](np.zeros(1, np.uint32))


@pytest.mark.parametrize(("shift", "advice"), [(-1, "i >= 0"), (1, r"i < x.shape\[0\]")])
def test_faults_advise_the_bound_that_was_crossed(shift: int, advice: str):
    @cp.cube
    def kernel(x, shift: int):
        x[cp.ABSOLUTE_POS + shift] = 1

    with pytest.raises(cp.OutOfBoundsError, match=advice):
        kernel.configure(checked=True)[1, 4](np.zeros(4), shift)


def test_unsupported_operations_have_the_name_that_the_user_called():
    @cp.cube
    def kernel(x):
        cp.cuda.increase_registers(40)

    with pytest.raises(cp.UnsupportedError, match=r"E310: `cp.cuda.increase_registers` is not"):
        kernel[1, 1](np.zeros(1))


@pytest.mark.parametrize(
    ("configuration", "dim", "target", "code"),
    [
        ({}, 1, "cuda:sm_1", "E503"),
        ({}, 1, "cuda:sm_080", "E503"),
        ({}, 10**8, "cuda:sm_90", "E408"),
        ({}, 10**8, "cpu", "E408"),
        ({}, (1, 1, 128), "cuda:sm_80", "E408"),
        ({"plane_dim": 31}, 1, "cpu", "E420"),
        ({"plane_dim": 128}, 1, "cpu", "E420"),
    ],
)
def test_inspection_keeps_to_the_limits_of_targets(
    configuration: Any, dim: Any, target: str, code: str
):
    @cp.cube
    def kernel(x):
        x[cp.ABSOLUTE_POS] = 1

    with pytest.raises(cp.Error, match=code):
        kernel.configure(**configuration)[1, dim].inspect("f32[4]", target=target)


@pytest.mark.optional("torch")
@pytest.mark.parametrize("name", ["sum", "max"])
def test_prebuilt_kernels_name_the_argument_that_lies_elsewhere(name: str):
    import torch

    with pytest.raises(cp.LaunchError, match=f"E602: {name}: `x` is on the device meta"):
        getattr(cp.kernels, name)(torch.empty(4, device="meta"))
    with pytest.raises(
        cp.LaunchError, match=f"E602: {name}: .*`x` is torch's on cpu and .* is torch's on meta"
    ):
        getattr(cp.kernels, name)(torch.zeros(4), out=torch.empty((), device="meta"))
