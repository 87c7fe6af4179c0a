"""The process's one linker: object code in, callable addresses out.

It is not a kernel compiler: `compile_text` serves only the runtime's own small IR.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_lock = threading.Lock()
_serial = itertools.count()
if hasattr(os, "register_at_fork"):  # a child must not inherit the lock held by a lost thread
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


@dataclass(frozen=True)
class Library:
    """Linked code: `address` maps each exported symbol to where it lies in this process.

    The code stays mapped while the Library lives; calling an address later is undefined.
    """

    name: str
    address: Mapping[str, int]
    _tracker: Any


def link(obj: bytes, symbols: Sequence[str]) -> Library:
    """Link an object file into this process and look up `symbols`.

    Undefined symbols resolve from the process: libc, libm, pthread. Any thread may call this.
    Raises RuntimeError with the linker's words when a symbol is missing or the object is bad.
    """
    from llvmlite import binding

    builder = binding.JITLibraryBuilder().add_object_img(obj).add_current_process()
    for symbol in symbols:
        builder.export_symbol(symbol)
    with _lock:
        name = f"cubepy.{next(_serial)}"  # ORC never frees a name, so none is used twice
        tracker = builder.link(_session(), name)
    return Library(name, {symbol: tracker[symbol] for symbol in symbols}, tracker)


def compile_text(ir: str, level: int = 2) -> bytes:
    """Compile LLVM IR text to an object file for this machine.

    `level` 0 and 1 run no IR passes, which is right for IR that was written in its final form.
    Raises RuntimeError with LLVM's words when the text does not parse or verify.
    """
    from llvmlite import binding

    with _lock:
        machine = _machine(level)
        module = binding.parse_assembly(ir)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        if level > 1:
            _optimise(module, machine, level)
        return bytes(machine.emit_object(module))


def _optimise(module: Any, machine: Any, level: int) -> None:
    from llvmlite import binding

    options = binding.create_pipeline_tuning_options(speed_level=level)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@functools.cache
def _machine(level: int) -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()  # inline assembly aborts the process without it
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=level,
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def _session() -> Any:
    """The LLJIT of this process; code of every Library lies in it, so it is never disposed."""
    from llvmlite import binding

    return binding.create_lljit_compiler(_machine(2))
