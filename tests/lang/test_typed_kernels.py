"""The kernels of typed_kernels.py run, so that what pyright accepts is the language as it is."""

import numpy as np
import pytest

import cubepy as cp
from tests.lang import typed_kernels


def test_they_run():
    x, out = np.full(4, 3, np.float32), np.zeros(4, np.float32)
    typed_kernels.scaled_sum[1, 1](x, out)
    assert out[0] == pytest.approx(4 * 3 * 0.9986501 + 16)
    typed_kernels.scaled_sum[1, 1](x, out, alpha=5.0)
    assert out[0] == -1
    typed_kernels.fill.configure(line_size=4)[1, 1](out)
    assert out.tolist() == [4, 5, 5, 5]
    typed_kernels.copy.over(out)(x, out)
    assert out.tolist() == [3, 3, 3, 3]
    typed_kernels.launch_all(x, out)


def test_what_pyright_refuses_is_refused():
    with pytest.raises(cp.Error):
        typed_kernels.refused[1, 1](np.zeros(1, np.int32))
