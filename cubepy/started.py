"""The text of the program that runs, as it was when CubePy was imported: Python keeps no bytecode
of it, and its file may be edited while it runs."""

import os
import sys

MOST = 1 << 22
"""Bytes of a file that are kept."""


def _read() -> tuple[str, bytes]:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(file, str):
        return "", b""
    try:
        if os.stat(file).st_size > MOST:
            return file, b""
        with open(file, "rb") as opened:
            return file, opened.read()
    except (OSError, ValueError):
        return file, b""


FILE, TEXT = _read()
"""Its name, as code of it has it, and its bytes; both are empty where there is none."""
