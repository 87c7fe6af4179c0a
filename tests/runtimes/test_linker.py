"""The linker: symbols, lifetime, threads and errors."""

from __future__ import annotations

import ctypes
import gc
import math
import threading

import pytest

from cubepy.runtimes.native import linker
from cubepy.runtimes.native.linker import Library, compile_text, link

DOUBLE_TO_DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
COSINE = """
declare double @cos(double)
define double @cosine(double %x) {
  %y = call double @cos(double %x)
  ret double %y
}
define double @half(double %x) {
  %y = fmul double %x, 0.5
  ret double %y
}
@answer = global i64 42
"""


@pytest.fixture(scope="module")
def cosine() -> bytes:
    return compile_text(COSINE)


def call(library: Library, symbol: str, x: float) -> float:
    return DOUBLE_TO_DOUBLE(library.address[symbol])(x)


def test_symbols_of_the_process_resolve(cosine: bytes) -> None:
    assert call(link(cosine, ["cosine"]), "cosine", 1.0) == math.cos(1.0)


def test_functions_and_data_have_addresses(cosine: bytes) -> None:
    library = link(cosine, ["half", "answer"])
    assert call(library, "half", 3.0) == 1.5
    assert ctypes.c_int64.from_address(library.address["answer"]).value == 42
    assert set(library.address) == {"half", "answer"}


def test_the_same_object_links_again_to_other_memory(cosine: bytes) -> None:
    first, second = link(cosine, ["half"]), link(cosine, ["half"])
    assert first.address["half"] != second.address["half"]
    del first
    gc.collect()
    assert call(second, "half", 8.0) == 4.0


def test_all_levels_compile() -> None:
    for level in range(4):
        assert call(link(compile_text(COSINE, level), ["half"]), "half", 1.0) == 0.5


def test_inline_assembly_compiles() -> None:
    compile_text('define void @f() { call void asm sideeffect "nop", ""()\n ret void }')


def test_a_missing_symbol_is_named(cosine: bytes) -> None:
    with pytest.raises(RuntimeError, match="nothing_like_this"):
        link(cosine, ["nothing_like_this"])


def test_an_undefined_reference_is_refused() -> None:
    obj = compile_text("declare void @gone()\ndefine void @f() { call void @gone()\n ret void }")
    with pytest.raises(RuntimeError, match="materialize"):
        link(obj, ["f"])


def test_bad_object_and_bad_text_raise() -> None:
    with pytest.raises(RuntimeError):
        link(b"not an object file", ["f"])
    with pytest.raises(RuntimeError, match="parsing error"):
        compile_text("define void @f() { ret i32 0 }")


def test_threads_link_at_once(cosine: bytes) -> None:
    results: list[float] = []

    def work() -> None:
        obj = compile_text(COSINE, level=0)
        results.extend(call(link(o, ["half"]), "half", 5.0) for o in (obj, cosine))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2.5] * 16


def test_libraries_in_cycles_are_unloaded_once_by_who_holds_the_lock(
    cosine: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector finalises a cycle in any order, while another thread uses LLVM."""
    from llvmlite.binding.orcjit import LLJIT, ResourceTracker

    unloaded: list[str] = []

    def watch(kind: type) -> None:
        dispose = kind._dispose

        def watched(self: object) -> None:
            assert linker._lock.locked()
            unloaded.append(kind.__name__)
            dispose(self)

        monkeypatch.setattr(kind, "_dispose", watched)

    watch(ResourceTracker)
    watch(LLJIT)
    for _ in range(2 * linker.LINKS_PER_SESSION):
        cycle: list[object] = [link(cosine, ["half"])]
        cycle.append(cycle)
    del cycle
    with linker._lock:
        before = len(unloaded)  # the collector may have run by itself
        gc.collect()
        while_locked = len(unloaded) - before
    linker._unload()
    assert while_locked == 0
    assert unloaded.count("ResourceTracker") >= 2 * linker.LINKS_PER_SESSION
    assert "LLJIT" in unloaded
