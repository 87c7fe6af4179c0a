"""Look-ups in constant tables: what is proved of them, shared and lowered."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.parser import parse_kernel
from cubepy.ir.verify import InvalidIR, verify
from cubepy.passes.cse import cse
from cubepy.passes.legalise.lower_lookups import lower_lookups
from cubepy.passes.licm import licm
from cubepy.passes.prove import prove

HEAD = "kernel @k(%x: buffer<i32, global> = data x, %n: index = shape x 0) cube_dim 64 1 1"


def kernel_of(body: str) -> Kernel:
    return verify(parse_kernel(f"{HEAD} plane_dim 1 written x {{\n{body}\n  return\n}}\n"))


def lookups(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.body.walk() if op.row is ops.LOOKUP]


def table(numbers: str, dtype: str = "i32") -> str:
    return f"lookup %i {{table = [{numbers}], type = {dtype}}} : {dtype}"


LONG = "3, 1, 4, 1, 5, 9, 2, 6"
POSITION = "  %i = unit_pos {axis = 'all'} : index\n"


def guarded(bound: int) -> str:
    return f"""{POSITION}  %b = const {{type = index, value = {bound}}} : index
  %c = lt %i, %b : bool_
  if %c then {{
    %v = {table(LONG)}
    store %x, %i, %v
    yield
  }} else {{
    yield
  }}"""


def test_only_what_control_flow_proves_is_inside():
    for bound, is_inside in ((7, True), (8, True), (9, False)):
        (found,) = lookups(prove(kernel_of(guarded(bound))))
        assert bool(found.attrs.get("inside")) is is_inside
        assert is_speculatable(found) is not is_inside


def test_indices_that_may_be_outside_are_clamped():
    for bound, clamps in ((8, 0), (9, 2)):
        lowered = lower_lookups(prove(kernel_of(guarded(bound))))
        rows = [op.row for op in lowered.body.walk()]
        assert rows.count(ops.MIN) + rows.count(ops.MAX) == clamps
        assert all(op.attrs["inside"] for op in lookups(lowered))


def test_what_is_inside_by_a_condition_is_not_moved_before_it():
    body = guarded(8).replace(POSITION, "").replace("\n", "\n  ")
    loop = f"""{POSITION}  %zero = const {{type = index, value = 0}} : index
  %one = const {{type = index, value = 1}} : index
  for %zero, %n, %one body(%p: index) {{
  {body}
    continue
  }}"""
    kernel = licm(prove(kernel_of(loop)))
    assert lookups(kernel) and all(op.row is not ops.LOOKUP for op in kernel.body.ops)


def test_short_tables_become_selections_that_clamp():
    lowered = lower_lookups(kernel_of(f"{POSITION}  %v = {table('3, 1, 4')}\n  store %x, %i, %v"))
    rows = [op.row for op in lowered.body.walk()]
    assert ops.LOOKUP not in rows and rows.count(ops.SELECT) == 2
    assert ops.MIN not in rows and ops.MAX not in rows


@pytest.mark.parametrize(
    ("a", "b", "is_shared"),
    [("0.0, 1.0", "0.0, 1.0", True), ("0.0, 1.0", "-0.0, 1.0", False), ("nan, 1.0",) * 2 + (True,)],
)
def test_equal_tables_are_shared(a: str, b: str, is_shared: bool):
    body = "".join(
        f"  %v{k} = {table(numbers, 'f32')}\n  %w{k} = bitcast %v{k} {{type = i32}} : i32\n"
        f"  store %x, %i, %w{k}\n"
        for k, numbers in enumerate((a, b))
    )
    assert len(lookups(cse(kernel_of(POSITION + body)))) == 2 - is_shared


@pytest.mark.parametrize("numbers", ["", "1.5, 2.0", "1, 3000000000"])
def test_tables_hold_numbers_of_their_type(numbers: str):
    with pytest.raises(InvalidIR):
        kernel_of(f"{POSITION}  %v = {table(numbers)}\n  store %x, %i, %v")


def test_the_tables_of_a_kernel_are_bounded_together():
    a, b = (np.arange(k, 10_000 + k, dtype=np.int32) for k in (0, 1))

    @cp.cube
    def kernel(x, out):
        out[0] = a[x[0]] + a[x[1]]

    @cp.cube
    def too_large(x, out):
        out[0] = a[x[0]] + b[x[1]]

    x, out = np.array([7, 9999]), np.zeros(1, np.int32)
    kernel[1, 1](x, out)
    assert out[0] == 10_006
    with pytest.raises(cp.CompileError, match="E309.*80000"):
        too_large[1, 1](x, out)


LETTERS, STEPS = b"ABC\xff", range(5, 50, 7)


def test_bytes_and_ranges_are_tables():
    @cp.cube
    def kernel(out):
        i = cp.ABSOLUTE_POS
        total = LETTERS[i] * 100 + STEPS[i]
        for letter in LETTERS:
            total += letter
        out[i] = total

    out = np.zeros(4, np.int32)
    kernel[1, 4](out)
    np.testing.assert_array_equal(
        out, [LETTERS[i] * 100 + STEPS[i] + sum(LETTERS) for i in range(4)]
    )
