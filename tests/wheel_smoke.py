"""Checks an installed wheel; run it outside the repository with the Python that has the wheel.

Not a pytest module: the environment under test holds CubePy and its dependencies, nothing else.
"""

import importlib
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import numpy as np

import cubepy as cp

ROOT = Path(__file__).parents[1]


@cp.cube
def add(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + y.flat[i]


def shipped() -> set[str]:
    """The files of the wheel that are CubePy's own."""
    return {str(path) for path in files("cubepy-jit") or () if path.parts[0] == "cubepy"}


def written() -> set[str]:
    """The files of the repository that the wheel has to hold, by their installed names."""
    folders = [ROOT / "cubepy", ROOT / "compilers", ROOT / "runtimes", ROOT / "autotune"]
    found = {path.relative_to(ROOT) for folder in folders for path in folder.rglob("*.py")}
    under = {path if path.parts[0] == "cubepy" else "cubepy" / path for path in found}
    return {str(path) for path in under} | {"cubepy/py.typed"}


def check_contents() -> None:
    assert not Path(cp.__file__).is_relative_to(ROOT), f"{cp.__file__} is not an installed copy"
    source = {name for name in shipped() if name.endswith((".py", ".typed"))}
    assert source == written(), f"the wheel and the repository differ in {source ^ written()}"


def check_imports() -> None:
    """Every module imports with the core dependencies alone."""
    for name in sorted(written()):
        if name.endswith(".py") and not name.endswith("__main__.py"):
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            importlib.import_module(module)


def check_kernel() -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
    out = np.zeros_like(x)
    add.over(out)(x, y, out)
    np.testing.assert_array_equal(out, x + y)


def check_command_line() -> None:
    command = Path(sys.executable).with_name("cubepy")
    shown = subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "demo" in shown, shown


def main() -> None:
    for check in (check_contents, check_imports, check_kernel, check_command_line):
        check()
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
