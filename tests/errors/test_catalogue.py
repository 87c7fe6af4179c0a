"""The catalogue of errors: entries are whole, their examples do what they say, all are reached."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import CATALOGUE
from tests.errors import test_messages
from tests.errors.case import CASES

ROOT = Path(__file__).parents[2]
PRODUCT = ("cubepy", "compilers", "runtimes", "autotune")
BLOCK = re.compile(r"^(Wrong|Right):\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_EXAMPLE = {
    "E119": "a defect of the compiler; tests/errors/test_malformed.py looks for it",
    "E121": "a guard: types settle, as far as known",
    "E122": "what CPython parses is hardly nested so deeply",
    "E418": "needs two devices with memories of their own",
    "E419": "its limit is more work than a test should do",
    "E504": "needs a device whose memory is full",
    "E505": "a defect of the compiler, found by LLVM",
    "E507": "needs a device whose driver lacks a part",
    "E508": "needs a driver that fails",
    "E509": "needs a device that a kernel can break",
    "E704": "tests/checked has its cases, on both devices",
    "E714": "E701 finds what the language can say; this guards the interpreter's own memory",
    "E715": "every check of today has a code of its own",
}
"""Codes that no test can bring about, with the reason."""
NOT_RAISED_YET: set[str] = set()
OWN_WORDS = {"E113", "E114", "E207", "E305", "E420", "E506", "E703", "E715"}
"""Codes without a hint in the catalogue: the message says all, or the place that raises has one."""


def examples(code: str) -> list[tuple[str, str]]:
    return BLOCK.findall(CATALOGUE[code].explanation)


def run(text: str, file: Path) -> None:
    file.write_text(f"import numpy as np\nimport cubepy as cp\n\n{text}", encoding="utf-8")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"np": np, "cp": cp})


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_entry_is_whole(code: str):
    row = CATALOGUE[code]
    assert row.code == code and len(row.template) > 4
    assert bool(row.hint) != (code in OWN_WORDS)
    prose = row.explanation.partition("Wrong:")[0]
    assert len(prose.split()) >= 9
    assert [kind for kind, _ in examples(code)] == (
        [] if code in NO_EXAMPLE else ["Wrong", "Right"]
    )


@pytest.mark.parametrize("code", [code for code in CATALOGUE if code not in NO_EXAMPLE])
def test_the_wrong_example_raises_it_and_the_right_one_nothing(code: str, tmp_path: Path):
    (_, wrong), (_, right) = examples(code)
    with pytest.raises(cp.Error) as found:
        run(wrong, tmp_path / f"wrong_{code}.py")
    assert found.value.code == code
    assert isinstance(found.value, CATALOGUE[code].kind)
    run(right, tmp_path / f"right_{code}.py")


def test_every_code_is_reached_by_a_case():
    reached = {test_messages.raised(name).error.code for name in CASES}
    assert {code for code in CATALOGUE if code not in reached} == set(NO_EXAMPLE)


def raised_codes() -> Iterator[str]:
    """Every code that is written somewhere in the product, besides the catalogue itself."""
    for path in (p for folder in PRODUCT for p in (ROOT / folder).rglob("*.py")):
        if path.name != "errors.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from (re.fullmatch(r"E\d{3}", node.value) and [node.value]) or []


def test_every_code_is_raised_somewhere():
    assert set(CATALOGUE) - set(raised_codes()) == NOT_RAISED_YET


def test_no_page_is_left_over():
    pages = {path.stem for path in (ROOT / "cubepy" / "explanations").iterdir()}
    assert pages == set(CATALOGUE)
