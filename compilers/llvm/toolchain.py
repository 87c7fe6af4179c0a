"""LLVM itself, through llvmlite: target machines, optimisation, objects and assembly.

The only module of the compilers that imports llvmlite, on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import Any

from cubepy.compilers.llvm.loops import are_final
from cubepy.errors import fail
from cubepy.forks import at_fork
from cubepy.meanwhile import note_compilation, uninterrupted
from cubepy.targets import Target

_lock = RLock()
# A fork waits for LLVM: a lost thread can't finish its work.
at_fork(_lock)


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


def _triple(target: Target) -> str:
    own = _llvm().get_process_triple()
    is_arm = target.family == "aarch64"
    if is_arm and not own.startswith(("aarch64", "arm64")):
        return "aarch64-unknown-linux-gnu"
    if not is_arm and not target.attributes and not own.startswith("x86_64"):
        return "x86_64-unknown-linux-gnu"
    return own


@lru_cache(maxsize=32)
def describe_machine(target: Target) -> tuple[str, str]:
    """Triple and data layout, as modules state them; what is known waits for no compilation."""

    def found() -> tuple[str, str]:
        with _lock:
            made = machine(target, 3)
            return str(made.triple), str(made.target_data)

    return uninterrupted(found)


@lru_cache(maxsize=32)
def _pass_builder(target: Target, level: int) -> Any:
    """The builder of the passes of a level; kept, because some memory of each is never freed."""
    options = _llvm().create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level >= 2
    options.slp_vectorization = False  # miscompiles in LLVM 22.1; lines and loops suffice
    options.loop_unrolling = False  # `passes.unroll` and interleaving do what is worth it
    return _llvm().create_pass_builder(machine(target, level), options)


_TIDYING = (
    "sroa",
    "simplify_cfg",  # before it merges blocks, the next pass sinks loads, in reverse order
    "instruction_combine",
    "simplify_cfg",
    "jump_threading",  # branches on what an earlier branch decided, as accesses by masks have
    "loop_rotate",
    "instruction_combine",
    "simplify_cfg",
)
"""Passes of functions that tidy up behind the emitter, where the loops are final."""
_ALL_PASSES = 3
"""The level that asks for LLVM's whole pipeline in any case."""


@lru_cache(maxsize=1)
def _tidying() -> Any:
    """The manager of those passes; kept, as builders are."""
    passes = _llvm().create_new_function_pass_manager()
    for name in _TIDYING:
        getattr(passes, f"add_{name}_pass")()
    return passes


@contextmanager
def _without_vector_combine() -> Iterator[None]:
    """A pass of LLVM 22.1 that aborts the process on some modules of lines; it changed the code of
    none of our kernels. The option is the process's: others who use LLVM get it back."""
    set_option = _llvm().set_option
    set_option("cubepy", "-disable-vector-combine=true")
    try:
        yield
    finally:
        set_option("cubepy", "-disable-vector-combine=false")


@contextmanager
def _optimised(text: str, target: Target, level: int) -> Iterator[Any]:
    """The optimised module of a text, with the lock held; `CompileError` E505 where LLVM refuses
    the text. Nothing of it is left afterwards: types and constants are kept in its context."""
    binding = _llvm()
    with _lock:
        context = binding.create_context()
        try:
            module = _parsed(text, context)
            try:
                if 0 < level < _ALL_PASSES and are_final(text):
                    _tidy(module, _pass_builder(target, level))
                else:
                    _optimise(module, _pass_builder(target, level))
                yield module
            finally:
                module.close()
        finally:
            context.close()


def _tidy(module: Any, builder: Any) -> None:
    for function in module.functions:
        if not function.is_declaration:
            _tidying().run(function, builder)


def _optimise(module: Any, builder: Any) -> None:
    """LLVM's pipeline for the builder's level."""
    passes = builder.getModulePassManager()
    try:
        with _without_vector_combine():
            passes.run(module, builder)
    finally:
        _llvm().ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)  # llvmlite forgets to
        passes.detach()


def _parsed(text: str, context: Any) -> Any:
    module = None
    try:
        module = _llvm().parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        if module is not None:
            module.close()  # before its context, which the traceback would keep it from
        raise fail("E505", reason=str(error).strip()[:400]) from None
    return module


def to_llvm(text: str, target: Target, level: int) -> str:
    """The optimised module as text."""

    def found() -> str:
        with _optimised(text, target, level) as module:
            return str(module)

    return uninterrupted(found)


def to_object(text: str, target: Target, level: int) -> bytes:
    """Machine code of a module, as a relocatable object."""
    note_compilation()

    def found() -> bytes:
        with _optimised(text, target, level) as module:
            return bytes(machine(target, level).emit_object(module))

    return uninterrupted(found)


def to_assembly(text: str, target: Target, level: int) -> str:
    """The same code as assembly text."""

    def found() -> str:
        with _optimised(text, target, level) as module:
            return str(machine(target, level).emit_assembly(module))

    return uninterrupted(found)
