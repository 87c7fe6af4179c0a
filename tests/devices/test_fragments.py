"""The products of `bench.gpu_fragments`: what they take of a multiprocessor, and their results."""

from __future__ import annotations

from typing import Any

import pytest

from bench import gpu_fragments as kernels
from bench.gpu_fragments import CONFIGS, DEPTH, PRODUCERS, Config
from tests.optional import require_package

TARGET = "cuda:sm_90a"
BYTES_OF_CUBE = 227 << 10
SIDE = 2048


def form(config: Config) -> tuple[Any, tuple[Any, ...]]:
    """A launcher, and descriptions of its arguments."""
    x, units = f"bf16[{SIDE},{SIDE}]", 32 * config.down * config.across
    if not config.engine:
        return kernels.multiply_copied[1, units], (x, x, x, config)
    launcher = kernels.multiply.configure(registers=168)[1, PRODUCERS + units]
    return launcher, (*kernels.maps(x, x, x, config), "u32", "u32", "i32", config)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_machine_code_spills_nothing(config: Config, nvrtc: None):
    launcher, arguments = form(config)
    text = launcher.inspect(*arguments, target=TARGET, stage="resources")
    registers, stored, loaded, _, nbytes = (int(w) for w in text.split() if w.isdigit())
    units = 32 * config.down * config.across + PRODUCERS * config.engine
    assert registers * units <= 65536
    assert stored == loaded == 0
    assert nbytes <= BYTES_OF_CUBE
    sass = launcher.inspect(*arguments, target=TARGET, stage="sass")
    assert sass.count("HMMA.16816") == 64 * 64 * DEPTH // (16 * 8 * 16)
    assert sass.count("LDSM.16.M") == 5 * 8  # the first part, and each of four in the loop


@pytest.mark.parametrize("extents", [(1024, 2048, 64), (2048, 2048, 192), (3072, 2304, 640)])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_results(config: Config, extents: tuple[int, int, int], hopper: str):
    torch, (m, n, k) = require_package("torch"), extents
    a, b = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((m, k), (k, n)))
    out = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    launch = kernels.launch(a, b, out, config)
    for _ in range(2):
        launch()
    left, right = a.double(), b.double()
    expected = left @ right
    allowed = 2.0**-8 * expected.abs() + 2.0**-22 * k * (left.abs() @ right.abs())
    assert bool(((out.double() - expected).abs() <= allowed).all())
