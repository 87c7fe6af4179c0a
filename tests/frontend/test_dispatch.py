"""The dispatcher: every name of the language has a handler, and no module needs a late import."""

import ast
import builtins as python
import math
from pathlib import Path

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend import dispatch, specialise, suggest
from cubepy.lang import atomic, builtins, cuda

FOLDER = Path(specialise.__file__).parent


@pytest.mark.parametrize("names", [builtins.BUILTINS, atomic.NAMES, cuda.NAMES])
def test_every_name_has_a_handler(names: dict[str, object]):
    assert [n for n, stub in names.items() if dispatch.intrinsic_of(stub) is None] == []


@pytest.mark.parametrize(
    ("function", "stub"),
    [
        (math.exp, builtins.exp),
        (np.arcsin, builtins.asin),
        (np.power, builtins.pow),
        (math.fabs, abs),
        (np.abs, abs),
        (min, builtins.minimum),
        (np.fmod, math.fmod),
        (list, tuple),
    ],
)
def test_twins_share_a_handler(function: object, stub: object):
    found, known = dispatch.intrinsic_of(function), dispatch.intrinsic_of(stub)
    assert found is not None and found is known


@pytest.mark.parametrize("function", [np.load, np.linalg.norm, np.float32, math.comb, len.__call__])
def test_namesakes_and_strangers_have_none(function: object):
    assert dispatch.intrinsic_of(function) is None


def _imports(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda p: p.stem)
def test_no_function_imports(path: Path):
    """An import of CubePy's inside a function would hide a circle of modules."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    found = [ast.unparse(i) for f in functions for i in _imports(f)]
    assert [text for text in found if "cubepy" in text] == []


def test_suggestions_name_what_kernels_and_users_can_call():
    found = {name for name, value in vars(python).items() if dispatch.intrinsic_of(value)}
    assert found == suggest.OF_PYTHON
    assert {*suggest.REDUCTIONS, "matmul"} <= set(cp.kernels.__all__)
