"""Threads that compile at the same time have LLVM's tools to themselves, and make the same code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

import cubepy as cp
from cubepy.compilers.llvm import toolchain

THREADS = 12
"""More than there are workshops."""


@cp.cube
def scale(x: Any, by: cp.Comptime[int], out: Any):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * by + i


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The texts of some modules, each with every level."""
    texts: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "to_assembly", lambda text, *rest: texts.append(text) or "")
        for k in (2, 3):
            scale[4, 64].inspect("f32[256]", k, "f32[256]", target="cpu", stage="asm")
    return [(text, level) for text in texts for level in (0, 1, 2, 3)]


def test_threads_make_the_same_code(modules: list[tuple[str, int]]):
    target, start = cp.device("cpu").target, Barrier(THREADS)
    expected = [toolchain.to_object(text, target, level) for text, level in modules]
    assert len(set(expected)) >= 4

    def compiled(thread: int) -> bool:
        start.wait(30)
        order = [(k + thread) % len(modules) for k in range(2 * len(modules))]
        found = [toolchain.to_object(modules[k][0], target, modules[k][1]) for k in order]
        return found == [expected[k] for k in order]

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(compiled, range(THREADS)))
    assert toolchain._without_vector_combine.open == 0


def test_no_two_threads_have_the_same_tools():
    target, inside = cp.device("cpu").target, Barrier(4)

    def held(_: int) -> int:
        with toolchain._tools(target, 2) as tools:
            inside.wait(30)
            return id(tools)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(held, range(4)))) == 4
    with toolchain._tools(target, 2) as first, toolchain._tools(target, 2) as second:
        assert first is second  # one thread may be in its workshop twice


def test_a_wrapper_without_its_function_is_called_itself():
    assert toolchain._unlocked(len) is len
