"""Fixtures of the launch tests."""

from __future__ import annotations

from typing import Any

import pytest

from cubepy.jit.compile import Specialisations


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The signatures that were compiled since the test began, in order."""
    found: list[Any] = []
    original = Specialisations._compile

    def count(self: Specialisations, signature: Any, device: Any) -> Any:
        found.append(signature)
        return original(self, signature, device)

    monkeypatch.setattr(Specialisations, "_compile", count)
    return found
