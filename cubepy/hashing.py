"""SHA-256 as Python itself has it: `hashlib` loads OpenSSL first, which takes milliseconds."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

_MODULES = ("_sha2", "_sha256", "hashlib")
"""Where it is: from Python 3.12 on, before, and where a Python was built without."""


def _find() -> Any:
    for name in _MODULES[:-1]:
        with suppress(ImportError):
            return import_module(name).sha256
    return import_module(_MODULES[-1]).sha256


sha256: Any = _find()
"""As `hashlib.sha256`."""
