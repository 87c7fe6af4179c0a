"""LLVM itself, through llvmlite: target machines, optimisation, objects and assembly.

The only module of the compilers that imports llvmlite, on first use.
"""

from __future__ import annotations

from functools import lru_cache
from threading import RLock
from typing import Any

from cubepy.errors import fail
from cubepy.targets import Target

_lock = RLock()


@lru_cache(maxsize=1)
def _llvm() -> Any:
    from llvmlite import binding

    binding.initialize_native_asmparser()
    return binding


@lru_cache(maxsize=1)
def _all_targets() -> None:
    _llvm().initialize_all_targets()
    _llvm().initialize_all_asmprinters()


@lru_cache(maxsize=32)
def machine(target: Target, level: int) -> Any:
    """The LLVM target machine of a CPU target."""
    binding = _llvm()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = _triple(target)
    if triple != binding.get_process_triple():
        _all_targets()
    try:
        found = binding.Target.from_triple(triple)
        return found.create_target_machine(
            cpu=target.arch,
            features=target.attributes,
            opt=level,
            reloc="pic",
            codemodel="jitdefault",
            jit=True,
        )
    except RuntimeError as error:
        raise fail("E503", target=target, suggestion=str(error)) from None


_ARM = (
    *("apple-", "neoverse", "cortex", "generic", "ampere", "a64fx", "thunderx", "carmel", "cobalt"),
    *("gb10", "grace", "tsv"),
)


def _triple(target: Target) -> str:
    own = _llvm().get_process_triple()
    is_arm = target.arch.startswith(_ARM) and not target.attributes
    if is_arm and not own.startswith(("aarch64", "arm64")):
        return "aarch64-unknown-linux-gnu"
    if not is_arm and not target.attributes and not own.startswith("x86_64"):
        return "x86_64-unknown-linux-gnu"
    return own


def describe_machine(target: Target) -> tuple[str, str]:
    """Triple and data layout, as modules state them."""
    with _lock:
        found = machine(target, 3)
        return str(found.triple), str(found.target_data)


def optimise(text: str, target: Target, level: int) -> Any:
    """Parse and optimise a module; `CompileError` E505 where LLVM refuses the text."""
    binding = _llvm()
    with _lock:
        try:
            module = binding.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            raise fail("E505", reason=str(error).strip()[:400]) from None
        options = binding.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = level >= 2
        options.slp_vectorization = False  # miscompiles in LLVM 22.1; lines and loops suffice
        builder = binding.create_pass_builder(machine(target, level), options)
        builder.getModulePassManager().run(module, builder)
        return module


def to_object(text: str, target: Target, level: int) -> bytes:
    """Machine code of a module, as a relocatable object."""
    module = optimise(text, target, level)
    with _lock:
        return bytes(machine(target, level).emit_object(module))


def to_assembly(text: str, target: Target, level: int) -> str:
    """The same code as assembly text."""
    module = optimise(text, target, level)
    with _lock:
        return str(machine(target, level).emit_assembly(module))
