"""Windows that lie side by side, as products of matrices: made on the CPU, planned for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution import entry, launches
from cubepy.kernels.convolution.patches import launch_patches, takes_patches
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded
from tests.kernels.test_convolution import channels_last, numbers, reference

CASES = [
    ((2, 3, 33, 50), (40, 3, 4, 5)),
    ((1, 3, 56, 56), (33, 3, 14, 14)),
    ((3, 1, 20, 64), (17, 1, 1, 16)),
    ((2, 16, 9, 9), (8, 16, 4, 4)),
    ((1, 2, 4, 9, 8), (6, 2, 2, 4, 4)),
    ((2, 3, 64), (24, 3, 16)),
]


@pytest.fixture
def in_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPUs do what GPUs do."""

    def launch(planner: Any, c: Any) -> None:
        assert takes_patches(c)
        launch_patches(planner, c)

    monkeypatch.setattr(launches, "_launch_on_cpu", launch)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())


@pytest.mark.usefixtures("in_patches")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_sums_in_f64(case: Any, last: bool, turned: bool):
    """Rows and columns that no window sees are left; all layouts of arrays, weights and results."""
    shape, weights = case
    x, w, bias = numbers(*shape), numbers(*weights), numbers(weights[0])
    function = {3: kernels.conv1d, 4: kernels.conv2d, 5: kernels.conv3d}[x.ndim]
    stride = weights[2:]
    added = bias.reshape(-1, *[1] * len(stride))
    exact = reference(x, w, stride=stride) + added
    largest = reference(abs(x), abs(w), stride=stride) + abs(added)
    given = channels_last(x) if last else x
    seen = channels_last(w) if turned else w
    for puts_last in (False, True):
        out = Guarded(np.moveaxis(exact, 1, -1).shape if puts_last else exact.shape)
        found = np.moveaxis(out.array, -1, 1) if puts_last else out.array
        function(given, seen, bias, stride, out=found)
        assert out.is_fenced
        assert (abs(found - exact) <= (w[0].size + 4) * 2.0**-24 * largest).all()


@pytest.mark.parametrize(
    ("weights", "options", "taken"),
    [
        ((768, 3, 16, 16), {"stride": 16}, True),
        ((768, 3, 16, 16), {"stride": 16, "padding": 1}, False),
        ((768, 3, 16, 16), {"stride": 15}, False),
        ((768, 3, 16, 16), {"stride": 16, "dilation": 2}, False),
        ((64, 3, 3, 3), {"stride": 3}, False),
        ((64, 3, 16, 16), {"stride": 16, "epilogue": lambda v, index: v}, False),
    ],
)
def test_what_goes_by_patches(weights: Any, options: Any, taken: bool):
    w = ",".join(map(str, weights))
    specs = {"x": spec("bf16[2,3,224,224]"), "weight": spec(f"bf16[{w}]")}
    launched = record(kernels.conv2d, specs, options, cuda_target("sm_90a"))
    names = [launch.kernel.__name__ for launch in launched]
    assert any(name.startswith("multiply") for name in names) == taken
