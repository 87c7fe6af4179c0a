"""Printing and parsing are inverse."""

from hypothesis import HealthCheck, given, settings

from cubepy.ir.core import Kernel, Op, Region
from cubepy.ir.ops import TABLE
from cubepy.ir.parser import parse_kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.verify import verify
from cubepy.options import Options
from cubepy.passes.pipeline import run, standard_passes
from tests.ir.strategies import PLAIN_ROWS, SPECIAL_ROWS, kernels, random_kernel

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def spans(kernel: Kernel) -> list[object]:
    return [op.span for op in kernel.body.walk()]


def same(a: Region, b: Region) -> bool:
    """The same rows, attributes, types and name hints, in the same places."""
    return (
        [(v.type, v.name) for v in a.args] == [(v.type, v.name) for v in b.args]
        and len(a.ops) == len(b.ops)
        and all(map(same_op, a.ops, b.ops))
    )


def same_op(a: Op, b: Op) -> bool:
    def values(op: Op) -> list[object]:
        return [(v.type, v.name) for v in (*op.operands, *op.results)]

    attributes = repr(sorted(a.attrs.items())) == repr(sorted(b.attrs.items()))
    return (
        a.row is b.row
        and attributes
        and values(a) == values(b)
        and all(map(same, a.regions, b.regions))
    )


def check(kernel: Kernel) -> None:
    text = print_kernel(kernel)
    back = verify(parse_kernel(text))
    assert print_kernel(back) == text
    assert same(kernel.body, back.body)
    assert spans(kernel) == spans(back)
    assert [(p.argument, p.kind) for p in kernel.params] == [
        (p.argument, p.kind) for p in back.params
    ]
    assert (kernel.cube_dim, kernel.plane_dim, kernel.written, kernel.noalias) == (
        back.cube_dim,
        back.plane_dim,
        back.written,
        back.noalias,
    )
    plain = print_kernel(kernel, spans=False)
    assert print_kernel(parse_kernel(plain), spans=False) == plain


@FEW
@given(kernels())
def test_print_and_parse_are_inverse(kernel: Kernel) -> None:
    check(kernel)


def test_also_for_ssa_form() -> None:
    for seed in range(40):
        check(run(random_kernel(seed), standard_passes(Options())))


def test_random_kernels_use_every_pure_row() -> None:
    assert {row for row in TABLE.values() if row.is_pure and not row.kind} == {
        *PLAIN_ROWS,
        *SPECIAL_ROWS,
    }
