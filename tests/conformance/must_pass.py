"""Which conformance tests must pass on which device: one committed list for each.

`python -m pytest tests/conformance --bless` writes them; read the diff. Without it a listed test
that is skipped fails, and `test_must_pass.py` finds those that are gone or not listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "must_pass"


def list_of(device: str) -> Path:
    """The file of a device, which has one test a line."""
    return FOLDER / f"{device.replace(':', '_')}.txt"


def read_list(device: str) -> set[str]:
    """The tests that must pass; none for a device without a list."""
    path = list_of(device)
    return set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()


def write_list(device: str, names: set[str]) -> None:
    """Replace the list of a device."""
    FOLDER.mkdir(exist_ok=True)
    list_of(device).write_text("".join(f"{n}\n" for n in sorted(names)), encoding="utf-8")


def device_of(item: Any) -> str | None:
    """The device that a test runs on; None for tests of no device."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("device")


def name_of(nodeid: str, device: str) -> str:
    """A test without its folder and its device: `test_x.py::test_y[f32-1]`."""
    test, _, parameters = nodeid.rpartition("/")[2].partition("[")
    parts = parameters.rstrip("]").split("-")
    parts.remove(device)
    return f"{test}[{'-'.join(parts)}]" if parts else test
