"""What the processor may be used for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cubepy.runtimes.native import host


@pytest.fixture
def asked_anew() -> Iterator[None]:
    """Features are looked up in the test, and once more after it."""
    host.host_cpu.cache_clear()
    yield
    host.host_cpu.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize("permitted", [True, False])
def test_tiles_need_the_permission_of_the_system(
    permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llvmlite import binding

    found = {"avx2": True, "amx-tile": True, "amx-bf16": True, "amx-fp16": False}
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: found)
    monkeypatch.setattr(host, "may_use_tiles", lambda: permitted)
    _, features = host.host_cpu()
    there = {name for name, on in features.items() if on}
    assert there == ({"avx2", "amx-tile", "amx-bf16"} if permitted else {"avx2"})
    assert features.keys() == found.keys()
