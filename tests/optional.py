"""Optional packages: those that CubePy does not depend on but works with, such as torch.

A test that needs one is marked `@pytest.mark.optional("torch")`, or calls
`require_package("torch")` (the fixture of that name, or this function at the top of a module that
sets `pytestmark = pytest.mark.optional`). Where the package is absent the test is skipped and
counted by name; with CUBEPY_REQUIRE_OPTIONAL=1, as in CI, it fails instead.
"""

import importlib
import os
import re
from types import ModuleType
from typing import NoReturn

import pytest

_ABSENT = "package absent: "


def require_package(name: str) -> ModuleType:
    """The module `name`; without it the test is skipped, or fails if CI asks for all."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
            raise  # the package is there and broken
    leave_out(name)


def leave_out(name: str) -> NoReturn:
    """Skip the test, or fail it if CI asks for all, because `name` is absent."""
    if os.environ.get("CUBEPY_REQUIRE_OPTIONAL") == "1":
        pytest.fail(f"{_ABSENT}{name}, and CUBEPY_REQUIRE_OPTIONAL=1 requires it", pytrace=False)
    pytest.skip(f"{_ABSENT}{name}", allow_module_level=True)


def absent_package(reason: str) -> str | None:
    """The package that a skip's reason names, if a package was the reason."""
    found = re.search(re.escape(_ABSENT) + r"([\w.]+)", reason)
    return found[1] if found else None
