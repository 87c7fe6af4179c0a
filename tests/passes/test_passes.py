"""Passes on readable text: each `.cube` file holds passes, a kernel and what becomes of it.

`pytest --bless` rewrites the expectations; read the diff.
"""

from pathlib import Path

import pytest

from cubepy.ir.parser import parse_kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.verify import verify
from cubepy.options import Options
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.contract import contract
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.fold import fold
from cubepy.passes.licm import licm
from cubepy.passes.pipeline import Pass, run, standard_passes
from cubepy.passes.prove import prove
from cubepy.passes.reassociate import reassociate
from cubepy.passes.unroll import unroll

PASSES = {
    f.__name__: f
    for f in (construct_ssa, contract, cse, dce, fold, licm, prove, reassociate, unroll)
}
CASES = sorted(Path(__file__).parent.glob("*.cube"))
EXPECT = "; expect:\n"


def named(names: str) -> list[Pass]:
    if names == "pipeline":
        return standard_passes(Options())
    if names == "fold fast_math":
        return [Pass(names, lambda kernel: fold(kernel, fast_math=True))]
    return [Pass(name, PASSES[name]) for name in names.split(",")]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_pass(path: Path, bless: bool) -> None:
    head, _, expected = path.read_text().partition(EXPECT)
    (names,) = [line[7:].strip() for line in head.splitlines() if line.startswith("; pass:")]
    kernel = run(verify(parse_kernel(head)), named(names))
    found = print_kernel(kernel, spans=False)
    if bless:
        path.write_text(f"{head.rstrip()}\n\n{EXPECT}{found}")
        return
    assert found == expected


def test_every_pass_has_five_cases() -> None:
    for name in PASSES:
        assert sum(path.stem.startswith(name) for path in CASES) >= 5, name
