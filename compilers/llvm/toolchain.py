"""LLVM itself, through llvmlite: target machines, optimisation, objects and assembly.

The only module of the compilers that imports llvmlite, on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import string_at
from functools import lru_cache
from itertools import count
from threading import RLock
from typing import Any, NamedTuple

from cubepy.compilers.llvm.loops import are_final
from cubepy.errors import fail
from cubepy.forks import at_fork
from cubepy.meanwhile import note_compilation, uninterrupted
from cubepy.targets import Target


@lru_cache(maxsize=1)
def _llvm() -> Any:
    from llvmlite import binding

    binding.initialize_native_asmparser()
    return binding


@lru_cache(maxsize=1)
def _all_targets() -> None:
    _llvm().initialize_all_targets()
    _llvm().initialize_all_asmprinters()


def _machine(target: Target, level: int) -> Any:
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
    """Triple and data layout, as modules state them."""

    def found() -> tuple[str, str]:
        with _tools(target, 3) as tools:
            return str(tools.machine.triple), str(tools.machine.target_data)

    return uninterrupted(found)


class _Tools(NamedTuple):
    """What compiles for a target at a level; kept, because some memory of builders and managers of
    passes is never freed."""

    machine: Any
    builder: Any
    tidying: Any


MOST_TOOLS = 32
"""Targets and levels that a workshop has tools for; the oldest go."""


class _Workshop:
    """Where one thread compiles at a time."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._tools: dict[tuple[str, str, str, int], _Tools] = {}

    def tools(self, target: Target, level: int) -> _Tools:
        """Its tools for a target."""
        key = _triple(target), target.arch, target.attributes, level
        if key not in self._tools:
            while len(self._tools) >= MOST_TOOLS:
                del self._tools[next(iter(self._tools))]
            self._tools[key] = _made(target, level)
        return self._tools[key]


_WORKSHOPS = tuple(_Workshop() for _ in range(8))
"""As many threads as compile at the same time."""
_turns = count()
for _shop in _WORKSHOPS:
    at_fork(_shop.lock)  # a fork waits for LLVM: a lost thread can't finish its work


@contextmanager
def _tools(target: Target, level: int) -> Iterator[_Tools]:
    """Those of a workshop that no other thread is in; where none is free, one is waited for."""
    shop = next((shop for shop in _WORKSHOPS if shop.lock.acquire(blocking=False)), None)
    if shop is None:
        shop = _WORKSHOPS[next(_turns) % len(_WORKSHOPS)]
        shop.lock.acquire()
    try:
        yield shop.tools(target, level)
    finally:
        shop.lock.release()


def _made(target: Target, level: int) -> _Tools:
    machine = _machine(target, level)
    options = _llvm().create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level >= 2
    options.slp_vectorization = False  # miscompiles in LLVM 22.1; lines and loops suffice
    options.loop_unrolling = False  # `passes.unroll` and interleaving do what is worth it
    passes = _llvm().create_new_function_pass_manager()
    for name in _TIDYING:
        getattr(passes, f"add_{name}_pass")()
    return _Tools(machine, _llvm().create_pass_builder(machine, options), passes)


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


class _WithoutVectorCombine:
    """Blocks without a pass of LLVM 22.1 that aborts the process on some modules of lines; it
    changed the code of none of our kernels. The option is the process's: others who use LLVM get it
    back when the last block ends."""

    def __init__(self) -> None:
        self._changing, self.open = RLock(), 0

    def __enter__(self) -> None:
        with self._changing:
            self.open += 1
            if self.open == 1:
                _llvm().set_option("cubepy", "-disable-vector-combine=true")

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self.open -= 1
            if not self.open:
                _llvm().set_option("cubepy", "-disable-vector-combine=false")


_without_vector_combine = _WithoutVectorCombine()


@contextmanager
def _optimised(text: str, tools: _Tools, level: int) -> Iterator[Any]:
    """The optimised module of a text; `CompileError` E505 where LLVM refuses the text. Nothing of
    it is left afterwards: types and constants are kept in its context."""
    context = _llvm().create_context()
    try:
        module = _parsed(text, context)
        try:
            if 0 < level < _ALL_PASSES and are_final(text):
                _tidy(module, tools)
            else:
                _optimise(module, tools)
            yield module
        finally:
            module.close()
    finally:
        context.close()


def _unlocked(function: Any) -> Any:
    """A function of LLVM without llvmlite's lock, which lets one thread at a time into LLVM: its
    contexts share nothing, and a thread has tools of its own."""
    return getattr(function, "_cfn", function)


def _tidy(module: Any, tools: _Tools) -> None:
    run = _unlocked(_llvm().ffi.lib.LLVMPY_RunNewFunctionPassManager)
    for function in module.functions:
        if not function.is_declaration:
            run(tools.tidying, function, tools.builder)


def _optimise(module: Any, tools: _Tools) -> None:
    """LLVM's pipeline for the builder's level."""
    lib, passes = _llvm().ffi.lib, tools.builder.getModulePassManager()
    try:
        with _without_vector_combine:
            _unlocked(lib.LLVMPY_RunNewModulePassManager)(passes, module, tools.builder)
    finally:
        lib.LLVMPY_DisposeNewModulePassManger(passes)  # llvmlite forgets to
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
        with _tools(target, level) as tools, _optimised(text, tools, level) as module:
            return str(module)

    return uninterrupted(found)


def to_object(text: str, target: Target, level: int) -> bytes:
    """Machine code of a module, as a relocatable object."""
    note_compilation()
    return uninterrupted(lambda: _emitted(text, target, level, is_object=True))


def to_assembly(text: str, target: Target, level: int) -> str:
    """The same code as assembly text."""
    return uninterrupted(lambda: _emitted(text, target, level, is_object=False)).decode()


def _emitted(text: str, target: Target, level: int, is_object: bool) -> bytes:
    """The machine code of a module as bytes."""
    ffi = _llvm().ffi
    emit = _unlocked(ffi.lib.LLVMPY_TargetMachineEmitToMemory)
    with (
        _tools(target, level) as tools,
        _optimised(text, tools, level) as module,
        ffi.OutputString() as reason,
    ):
        buffer = emit(tools.machine, module, int(is_object), reason)
        if not buffer:
            raise fail("E505", reason=str(reason).strip()[:400])
        try:
            size = ffi.lib.LLVMPY_GetBufferSize(buffer)
            return string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), size)
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
