"""Hooks of mkdocs: pages that are generated from tables of the code."""

import runpy
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

GENERATED = {"guide/errors.md": "error_index", "guide/operations.md": "op_reference"}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages to those on disk."""
    for uri, name in GENERATED.items():
        content = runpy.run_path(str(Path(__file__).with_name(f"{name}.py")))["page"]()
        files.append(File.generated(config, uri, content=content))
    return files
