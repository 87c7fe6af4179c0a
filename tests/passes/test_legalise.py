"""Legalisation as a list of steps: what each target asks for, and that every step can be dumped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm.capabilities import capabilities
from cubepy.compilers.registry import find_compiler
from cubepy.config import settings
from cubepy.ir import ops
from cubepy.ir.types import f64, i32
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.passes.legalise.pipeline import steps
from cubepy.targets import parse_target

DIALECTS = ("cuda:sm_75", "cuda:sm_90a", "hip:gfx942", "metal", "opencl", "opencl:fp16+subgroups")


def capabilities_of(target: str) -> Capabilities:
    found = parse_target(target)
    compiler: Any = find_compiler(found.kind)
    return capabilities(found) if found.kind == "cpu" else compiler.dialect(found).can


def names(target: str) -> list[str]:
    return [step.name for step in steps(capabilities_of(target))]


def test_targets_take_the_steps_that_they_need():
    assert "fission" in names("cpu:x86-64-v3") and "fission" not in names("opencl")
    assert "predicate" in names("metal") and "predicate" not in names("hip:gfx942")
    assert "watch_faults" in names("cuda:sm_90a") and "watch_faults" not in names("hip:gfx942")
    assert "compute_in_f32" in names("cuda:sm_90a") and "compute_in_f32" not in names("metal")
    assert "expand_arithmetic" in names("hip:gfx942")
    assert "expand_arithmetic" not in names("cpu:x86-64-v3")


@pytest.mark.parametrize("target", DIALECTS)
def test_capabilities_follow_from_the_spellings(target: str):
    can = capabilities_of(target)
    assert can.has(ops.ADD, i32) and not can.has(ops.FLOORDIV, i32)
    assert can.has(ops.ATOMIC_ADD, f64) == target.startswith(("cuda", "hip"))
    assert (f64 in can.scalars) == (target != "metal")
    assert can.planes is (Planes.MEMORY if target == "opencl" else Planes.SHUFFLES)


def test_a_target_without_a_list_has_everything():
    can = Capabilities(target="t", kind="t")
    assert can.has(ops.ATOMIC_CAS, f64)
    assert not replace(can, native={}).has(ops.ADD, i32)


@cp.cube
def quotients(x, out):
    out[cp.UNIT_POS] = x[cp.UNIT_POS] // out[cp.UNIT_POS]


@pytest.mark.parametrize(
    ("target", "step"),
    [("cuda:sm_90a", "expand_arithmetic"), ("opencl", "wrap_signed"), ("cpu", "lower_checks")],
)
def test_each_step_can_be_dumped(target: str, step: str, capsys: pytest.CaptureFixture[str]):
    with settings(dump=(f"after:{step}",)):
        quotients[1, 4].inspect("i32[?]", "i32[?]", target=target)
    assert f"; after {step} of quotients" in capsys.readouterr().err


@cp.cube
def signs(a, b, out):
    out[cp.UNIT_POS] = cp.copysign(a[cp.UNIT_POS], b[cp.UNIT_POS])


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("target", [*DIALECTS, "cpu"])
def test_signs_of_small_floats_are_copied_on_their_bits(target: str, dtype: str):
    """Hardware's conversions of f16 to f32 lose the sign of NaN."""
    array = f"{dtype}[?]"
    listing = signs[1, 4].inspect(array, array, array, target=target)
    code = [line for line in listing.lower().splitlines() if "cp.copysign" not in line]
    assert code and not any(w in line for line in code for w in ("float(", "copysign", "cvt"))


@cp.cube
def by_a_zero_that_is_found_late(x: cp.Tensor[cp.u32], out: cp.Tensor[cp.u32]):
    i, divisor = cp.UNIT_POS, cp.u32(0)
    if x[i] < 0:  # no unsigned number is
        divisor = x[i]
    out[i] = x[i] // divisor + x[i] % divisor


@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl", "metal", "hip:gfx942"])
def test_divisions_by_a_known_zero_are_zero(target: str):
    text = str(by_a_zero_that_is_found_late[1, 4].inspect("u32[4]", "u32[4]", target=target))
    assert "out[i] = 0u;" in text


def test_a_known_zero_divides_on_the_cpu():
    x, out = np.arange(4, dtype=np.uint32), np.ones(4, np.uint32)
    by_a_zero_that_is_found_late[1, 4](x, out)
    assert not out.any()
