"""Precedence: each template of each dialect by C's grammar, and nested expressions that run.

CUDA C and HIP run as C++ against a shim of a few lines, OpenCL C on PoCL, Metal as C++.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from cubepy.compilers.cstyle.compiler import Source
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.spelling import (
    ADD,
    AND,
    ATOM,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARE,
    EQUAL,
    MUL,
    OR,
    POSTFIX,
    SHIFT,
    TERNARY,
    UNARY,
    Expr,
    Spelling,
    prefix,
)
from cubepy.compilers.registry import find_compiler
from cubepy.ir.core import Kernel
from cubepy.targets import parse_target
from tests.compilers.c import cuda_text, text_devices
from tests.compilers.c.c_parser import contains, parse
from tests.compilers.c.expressions import expression_kernel
from tests.compilers.c.random_kernels import expected_memory
from tests.compilers.c.test_random import build_metal, build_opencl, memory_after

TARGETS = (
    *("cuda:sm_75", "cuda:sm_90a", "hip:gfx942", "metal"),
    *("opencl", "opencl:fp16+subgroups"),
)
KERNELS, CHUNKS = 40, int(os.environ.get("CUBEPY_FUZZ_CHUNKS", "1"))
OPERANDS = {
    TERNARY: "p{0} ? q{0} : r{0}",
    OR: "p{0} || q{0}",
    AND: "p{0} && q{0}",
    BIT_OR: "p{0} | q{0}",
    BIT_XOR: "p{0} ^ q{0}",
    BIT_AND: "p{0} & q{0}",
    EQUAL: "p{0} == q{0}",
    COMPARE: "p{0} < q{0}",
    SHIFT: "p{0} << q{0}",
    ADD: "p{0} - q{0}",
    MUL: "p{0} / q{0}",
    UNARY: "-p{0}",
    POSTFIX: "f(p{0})",
    ATOM: "p{0}",
}
"""For each rank an expression, of names with a number."""


def dialect_of(target: str) -> Dialect:
    found = parse_target(target)
    compiler: Any = find_compiler(found.kind)
    return compiler.dialect(found)


def templates(dialect: Dialect) -> Iterator[tuple[str, Spelling]]:
    """All that have operands, but for statements of assembly."""
    for (row, dtype), spelling in dialect.spellings.items():
        yield f"{row.name} {dtype}", spelling
    for (row, source, target), spelling in dialect.conversions.items():
        yield f"{row.name} {source} {target}", spelling
    for name in ("bitcast", "vector_splat", "vector_load", "vector_store", "stream_store"):
        spelling = getattr(dialect, name)
        if spelling is not None and "({type})({0})" not in spelling.text:
            yield name, spelling
    yield "print_float", dialect.print_float


FIELDS = {"t": "int", "type": "make", "p": "&x[i]", "space": "", "mask": "15", "item": "4"}


@pytest.mark.parametrize("target", TARGETS)
def test_operands_of_templates_are_whole(target: str):
    """An operand of any rank is one node of the tree, and so is the filled template of its rank."""
    count = 0
    for name, spelling in templates(dialect_of(target)):
        if spelling.text.startswith("asm"):
            continue
        positions = sorted({int(c) for c in "012" if f"{{{c}}}" in spelling.text})
        for rank, text in OPERANDS.items():
            for varied in positions:
                operands = [Expr(f"x{k}") for k in range(max(positions) + 1)]
                operands[varied] = Expr(text.format(varied), rank)
                filled = spelling.fill(operands, **FIELDS, width="2")
                found = parse(filled.whole)
                assert contains(found, parse(operands[varied].whole)), f"{name}: {filled.whole}"
                negated = parse(f"!{filled.within(UNARY)}")
                assert negated == ("!", found), f"{name}: {filled.whole} is of another rank"
                count += 1
    assert count > 500


def test_a_template_without_needs_is_safe():
    half = Expr("a ? b : c", TERNARY)
    assert Spelling("{0} / {1}").fill([half, half]).whole == "(a ? b : c) / (a ? b : c)"
    assert Spelling("f({0}, {1})").fill([half, half]).whole == "f(a ? b : c, a ? b : c)"
    assert f"{half} + 1" == "(a ? b : c) + 1"


def test_signs_do_not_join():
    assert prefix("-").fill([Expr("-x", UNARY)]).whole == "-(-x)"
    assert prefix("!").fill([Expr("!x", UNARY)]).whole == "!!x"


def test_the_parser_sees_lost_brackets():
    lost, kept = "a ? b : c ? x : y", "(a ? b : c) ? x : y"
    assert not contains(parse(lost), parse("a ? b : c"))
    assert contains(parse(kept), parse("a ? b : c"))
    with pytest.raises(AssertionError, match="joined"):
        parse("--x")


BUILDS = {
    "pocl": ("opencl", build_opencl),
    "metal_text": ("metal", build_metal),
    "cuda_text": ("cuda:sm_90a", cuda_text.build),
    "hip_text": ("hip:gfx942", cuda_text.build),
}


def made(chunk: int, target: str) -> list[tuple[int, Kernel, Source]]:
    seeds = range(chunk * KERNELS, (chunk + 1) * KERNELS)
    kernels = [(seed, expression_kernel(seed)) for seed in seeds]
    return [(seed, kernel, Source(kernel, dialect_of(target))) for seed, kernel in kernels]


def require(device: str) -> None:
    text_devices.require("metal_text" if device in ("cuda_text", "hip_text") else device)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("device", BUILDS)
def test_nested_expressions(device: str, chunk: int):
    """What kernels of deeply nested expressions leave in memory, beside a direct evaluation."""
    require(device)
    target, build = BUILDS[device]
    programs = made(chunk, target)
    for (seed, kernel, source), run in zip(programs, build(programs), strict=True):
        assert memory_after(kernel, run) == expected_memory(kernel), f"seed {seed}\n{source.text}"


@pytest.mark.parametrize("device", BUILDS)
def test_lost_brackets_are_found(device: str, monkeypatch: pytest.MonkeyPatch):
    """The comparison can fail: without the brackets that grammar asks for some kernel is wrong."""
    require(device)
    target, build = BUILDS[device]
    keeps = Expr.within
    with monkeypatch.context() as patch:
        patch.setattr(
            Expr, "within", lambda e, rank: e.whole if e.rank < rank <= OR + 1 else keeps(e, rank)
        )
        programs = made(0, target)
    runs = zip(programs, build(programs), strict=True)
    assert any(memory_after(k, run) != expected_memory(k) for (_, k, _), run in runs)
