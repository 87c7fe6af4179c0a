"""Prebuilt functions are loaded on first use, by one list of where each is."""

import ast
import inspect
import subprocess
import sys

from cubepy import kernels
from cubepy.kernels.functions import HOMES

SCRIPT = """
import sys
from cubepy import kernels
assert callable(kernels.attention)  # which loads the subpackage matmul
assert callable(kernels.matmul) and callable(kernels.attention)
import cubepy.kernels.matmul.entry
assert callable(kernels.matmul)
assert not [name for name in sys.modules if name.startswith("cubepy.kernels.pooling")]
assert "cumsum" in dir(kernels) and callable(kernels.random.normal)
"""


def imports() -> dict[str, tuple[str, ...]]:
    """What the package imports for type checkers."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(kernels))):
        if isinstance(node, ast.ImportFrom) and node.col_offset:
            home = (node.module or "").removeprefix("cubepy.kernels").removeprefix(".")
            found[home] = tuple(name.name for name in node.names)
    return found


def test_type_checkers_see_the_same_names():
    assert imports() == {"": ("random",), **HOMES}


def test_all_names_are_public():
    names = {name for names in HOMES.values() for name in names}
    assert set(kernels.__all__) == names | {"random"}
    assert all(getattr(kernels, name) is not None for name in kernels.__all__)


def test_one_family_is_loaded_and_its_function_hides_a_subpackage():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
