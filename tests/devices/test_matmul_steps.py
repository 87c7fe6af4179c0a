"""The kernels of the guide's product: what they take of a multiprocessor, and their results."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from bench import hopper_matmul as kernels
from bench.matmul_steps import SIZES, STEPS
from tests.optional import require_package

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "hopper-matmul.md"
RECORDED = ROOT / "bench" / "results" / "matmul_steps.json"
TARGET = "cuda:sm_90a"
BYTES_OF_CUBE = 227 << 10
M, N, K = 4096, 2048, 1024


def forms() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The launcher of each step, and descriptions of its arguments."""
    a, b, out, words = f"bf16[{M},{K}]", f"bf16[{N},{K}]", f"bf16[{M},{N}]", f"u32[{M},{N // 2}]"
    left = cp.cuda.tensor_map(a, (kernels.HEIGHT, kernels.DEPTH), 128)
    right = cp.cuda.tensor_map(b, (kernels.WIDTH, kernels.DEPTH), 128)
    boxes = cp.cuda.tensor_map(out, (64, 64), 128)
    return {
        "1": (kernels.by_fragments[(N // 16, M // 16), 32], (a, f"bf16[{K},{N}]", out)),
        "2": (kernels.by_planes[1, 256], (a, b, words, 1)),
        "2 with stages": (kernels.by_planes[1, 256], (a, b, words, 4)),
        "3": (kernels.by_warpgroups[1, 256], (left, right, words, "i32")),
        "4": (kernels.by_ring[1, 256], (left, right, words, "i32")),
        "5": (kernels.by_roles[1, 384], (left, right, words, "i32")),
        "6": (kernels.by_staying[132, 384], (left, right, boxes, "u32", "u32", "i32")),
    }


@pytest.mark.parametrize("step", forms())
def test_machine_code_spills_nothing(step: str, nvrtc: None):
    launcher, arguments = forms()[step]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of ptxas, that it runs `wgmma` one by one
        text = launcher.inspect(*arguments, target=TARGET, stage="resources")
    numbers = [int(word) for word in text.split() if word.isdigit()]
    registers, stored, loaded, _, nbytes = numbers
    assert registers * launcher_units(step) <= 65536
    assert stored == loaded == 0
    assert nbytes <= BYTES_OF_CUBE
    assert "ptxas" not in text


def launcher_units(step: str) -> int:
    return {"1": 32, "5": 384, "6": 384}.get(step, 256)


def test_the_page_shows_the_module():
    page, module = PAGE.read_text(encoding="utf-8"), inspect.getsource(kernels)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"\n{3,}", block.strip())]
    assert [part for part in parts if part not in module] == []
    assert {name for name in vars(kernels) if name.startswith("by_")} <= {
        name for name in re.findall(r"^def (\w+)", "\n".join(parts), re.MULTILINE)
    }


def test_the_page_has_the_recorded_figures():
    page, found = PAGE.read_text(encoding="utf-8"), json.loads(RECORDED.read_text(encoding="utf-8"))
    rows = {(row["step"], row["size"]): row for row in found["rows"]}
    assert set(rows) == {(step, size) for step in STEPS for size in SIZES}
    assert found["machine"] in " ".join(page.split())
    for step in STEPS:
        row, large = (rows[step, size] for size in SIZES)
        name = f"`{step}`" if step.startswith("cp.") else step
        shown = f"{row['microseconds']:,.0f} | {row['ours']:.0f} | {row['cublas']:.0f}"
        assert f"| {name} | {shown} | {row['ratio']:.3f} | {large['ratio']:.3f} |" in page


@pytest.mark.parametrize("extents", [(128, 256, 64), (1280, 768, 512), (256, 2048, 1088)])
@pytest.mark.parametrize("step", STEPS)
def test_results(step: str, extents: tuple[int, int, int], hopper: str):
    torch, (m, n, k) = require_package("torch"), extents
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    out = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    launch = STEPS[step](a, b, out)
    for _ in range(2):
        launch()
    left, right = a.double(), b.double().T
    expected = left @ right
    allowed = 2.0**-8 * expected.abs() + 2.0**-22 * k * (left.abs() @ right.abs())
    assert bool(((out.double() - expected).abs() <= allowed).all())


def test_other_extents_are_refused():
    a, b = np.empty((128, 64)), np.empty((200, 64))
    with pytest.raises(ValueError, match="multiples of 128 x 256"):
        kernels.with_planes(a, b, None, 1)
    with pytest.raises(ValueError, match="multiple of 64"):
        kernels.steps_of(np.empty((128, 60)))
