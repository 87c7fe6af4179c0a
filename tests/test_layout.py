"""The folders beside cubepy/ are its subpackages: on disk, in the wheel, and once in memory."""

import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAPPED = ("autotune", "compilers", "runtimes")


def modules() -> list[tuple[str, ...]]:
    """Every module of the distribution by its import path, `__init__` spelled out."""
    found = []
    for folder in ("cubepy", *MAPPED):
        for parent, _, files in os.walk(ROOT / folder):  # does not follow the links
            package = Path(parent).relative_to(ROOT).parts
            prefix = package if folder == "cubepy" else ("cubepy", *package)
            found += [(*prefix, name[:-3]) for name in files if name.endswith(".py")]
    return sorted(found)


def packages() -> list[str]:
    return sorted({".".join(path[:-1]) for path in modules()})


@pytest.mark.parametrize("name", MAPPED)
def test_the_link_is_relative(name):
    assert os.readlink(ROOT / "cubepy" / name) == os.path.join("..", name)


def test_package_dir_maps_the_linked_folders():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["package-dir"] == {f"cubepy.{name}": name for name in MAPPED}


def test_every_folder_with_modules_is_a_package():
    marked = {".".join(path[:-1]) for path in modules() if path[-1] == "__init__"}
    missing = sorted(set(packages()) - marked)
    assert not missing, "an __init__.py is missing"


def test_the_wheel_lists_every_package(monkeypatch):
    import setuptools

    given = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: given.update(keywords))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    assert given["packages"] == packages()


IMPORT_ALL = """
import collections, importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
second = [n for n in sys.modules if n.split(".")[0] in ("compilers", "runtimes", "autotune")]
assert not second, f"imported past cubepy: {second}"
files = collections.defaultdict(list)
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "cubepy" and getattr(module, "__file__", None):
        files[os.path.realpath(module.__file__)].append(name)
twice = [names for names in files.values() if len(names) > 1]
assert not twice, f"one file, several modules: {twice}"
"""


def test_every_module_imports_and_exists_once():
    names = [
        ".".join(path).removesuffix(".__init__") for path in modules() if path[-1] != "__main__"
    ]
    command = [sys.executable, "-c", IMPORT_ALL, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
