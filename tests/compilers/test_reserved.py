"""Kernels whose names the libraries of a target have."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compilers.ptx import launching


def named(name: str, folder: Path) -> Any:
    """A kernel of that name."""
    file = folder / f"{name}.py"
    file.write_text(
        f"import cubepy as cp\n@cp.cube\ndef {name}(out):\n    out[cp.ABSOLUTE_POS] = 1\n"
    )
    return runpy.run_path(str(file))[name]


@pytest.mark.parametrize("name", ["lround", "llrintf", "rhypotf", "sincospi", "norm3df", "va_end"])
def test_cuda_compiles_names_of_its_library(name: str, tmp_path: Path):
    launching.require()
    out = np.zeros(32, np.float32)
    launching.launch(named(name, tmp_path), 32, [out])
    assert (out == 1).all()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("hip:gfx942", ("fadd", "rand", "errno", "M_PI", "FP_FAST_FMAF")),
        ("metal", ("SHRT_MAX", "M_2_PI_F")),
        ("opencl", ("M_LOG2E", "M_1_PI_F", "DBL_MAX_10_EXP", "HALF_EPSILON", "MAX_WORK_DIM")),
    ],
)
def test_names_of_libraries_get_a_number(target: str, names: tuple[str, ...], tmp_path: Path):
    for name in names:
        text = named(name, tmp_path)[1, 32].inspect(np.zeros(32, np.float32), target=target)
        assert re.search(rf"\b{name}_1\(", text), text
