"""Programs of control flow are run by Python itself, and what it returns is what devices must give.

The tests compare a few programs on the interpreter and in three ways on the CPU;
`python -m tests.fuzz --family flow` as many as asked for.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.fuzz.flow import model, oracle
from tests.fuzz.flow.prelude import HEAD

PROGRAMS = 8
CONSTRUCTS = {
    ast.NamedExpr, ast.Lambda, ast.FunctionDef, ast.Match, ast.MatchAs, ast.MatchOr,
    ast.MatchSequence, ast.While, ast.For, ast.Break, ast.Continue, ast.Return, ast.IfExp,
    ast.BoolOp, ast.Compare, ast.ListComp, ast.AugAssign, ast.Tuple, ast.Slice, ast.Dict,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_seeded_programs(seed: int) -> None:
    oracle.check(seed, ("interpreter", *oracle.WAYS))


def test_programs_have_all_constructs_inside_of_loops_and_arms() -> None:
    found = Counter(
        type(inner)
        for seed in range(60)
        for node in ast.walk(ast.parse(oracle.program(seed).source))
        if isinstance(node, ast.For | ast.While | ast.If)
        for part in (*node.body, *node.orelse)
        for inner in ast.walk(part)
    )
    assert all(found[kind] >= 20 for kind in CONSTRUCTS), found


def test_units_take_different_ways() -> None:
    """Most programs return many different results, or nothing would be compared."""
    different = 0
    for seed in range(60):
        flow = oracle.program(seed)
        different += len(set(oracle.in_python(flow, oracle.inputs(flow, seed)))) > 8
    assert different > 40


def test_the_comparison_can_fail() -> None:
    flow = oracle.program(1)
    expected = oracle.in_python(flow, oracle.inputs(flow, 1))
    oracle.compare(1, flow, expected, expected, "Python")
    wrong = [(*expected[0][:-1], int(expected[0][-1]) + 1), *expected[1:]]
    with pytest.raises(oracle.Wrong, match="unit 0"):
        oracle.compare(1, flow, expected, wrong, "a wrong device")


def test_numbers_of_the_model_keep_their_type() -> None:
    names = model.namespace()
    exec(HEAD, names)
    u8, i32 = names["cp"].u8, names["cp"].i32
    assert (u8(250) + 10).value == 4 and (u8(250) + 10).type == "u8"
    assert (i32(-7) // 2).value == -4 and (u8(1) + i32(-2)).type == "i32"
    log = names["cp"].local(14, i32, 0)
    with pytest.raises(model.Refused):
        names["note"](log, u8(1) + 300)
    pair = names["Pair"](i32(3), i32(5))
    assert pair.more(i32(1)).b.value == -2
    assert names["note"](log, i32(6)).value == 6 and log[2].value == 6
