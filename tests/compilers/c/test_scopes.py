"""Names that the writers of C dialects give are there wherever they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from tests.compilers.c import text_devices
from tests.optional import require_package


@cp.cube
def strides_of_two(out: cp.Tensor[cp.i32], n: cp.u32):
    """Both branches step by one value of the run time, which is computed before them."""
    places = range(cp.u32(cp.CUBE_POS), n, cp.u32(cp.CUBE_COUNT))
    if cp.UNIT_POS == 0:
        for i in places:
            out[i] = i
    elif cp.UNIT_POS == 1:
        for i in places:
            out[n + i] = -i


@pytest.mark.parametrize("device", text_devices.DEVICES)
def test_steps_that_two_branches_share(device: str, require_text_device: Any):
    require_text_device(device)
    out = np.full(14, 99, np.int32)
    strides_of_two.configure(device=device)[3, 2](out, 7)
    np.testing.assert_array_equal(out, [*range(7), *(-i for i in range(7))])


def test_steps_that_two_branches_share_in_cuda():
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    listing = strides_of_two[3, 2].inspect("i32[14]", "u32", target="cuda:sm_90a", stage="ptx")
    assert "strides_of_two" in listing
