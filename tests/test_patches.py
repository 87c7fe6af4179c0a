"""What tests of devices replace exists: most of them run only where their device is."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.test_layout import ROOT

DEVICES = ROOT / "tests" / "devices"


def replaced(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names in `monkeypatch.setattr(module, "name", ...)`, each with that of its module."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(ast.Name("monkeypatch"), "setattr"),
                args=[ast.Name(module), ast.Constant(str(name)), _],
            ):
                yield module, name


def of_file(path: Path) -> list[tuple[str, str]]:
    """The names that a file of tests replaces."""
    return list(replaced(ast.parse(path.read_text(encoding="utf-8"))))


FILES = {path.stem: found for path in sorted(DEVICES.glob("test_*.py")) if (found := of_file(path))}


@pytest.mark.parametrize("file", FILES)
def test_replaced_attributes_exist(file: str):
    names = vars(importlib.import_module(f"tests.devices.{file}"))
    modules = [(names.get(module), name) for module, name in FILES[file]]
    missing = [
        f"{module.__name__}.{name}"
        for module, name in modules
        if isinstance(module, ModuleType) and not hasattr(module, name)
    ]
    assert not missing
