"""The process's one linker: object code in, callable addresses out.

It is not a kernel compiler: `compile_text` serves only the runtime's own small IR.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cubepy.forks import at_fork
from cubepy.record import dataclass
from cubepy.runtimes.native.host import host_cpu, llvm_versions
from cubepy.runtimes.remember import remembered

LINKS_PER_SESSION = 16
"""Libraries that share a session: making one takes as long as some links, and a session keeps some
memory of each library until it ends."""

_lock = threading.Lock()
_serial = itertools.count()
# A child must not inherit the lock held by a lost thread.
at_fork(_lock)

_once = threading.RLock()  # taken before `_lock`, also where a fork takes both
at_fork(_once)
T = TypeVar("T")


def once(make: Callable[[], T]) -> Callable[[], T]:
    """The result of the first call, for all: threads that come together wait for it. With
    `functools.cache` each would make its own, and all but one would be unloaded while in use."""
    made: list[T] = []

    @functools.wraps(make)
    def found() -> T:
        if not made:
            with _once:
                if not made:
                    made.append(make())
        return made[0]

    return found


@dataclass(frozen=True)
class Library:
    """Linked code: `address` maps each exported symbol to where it lies in this process.

    The code stays mapped while the Library lives; calling an address later is undefined.
    """

    name: str
    address: Mapping[str, int]
    _held: _Held


class _Session:
    """An LLJIT; it ends with the last of its libraries once another is in use."""

    def __init__(self) -> None:
        from llvmlite import binding

        self.jit = binding.create_lljit_compiler(_machine(2))
        self.links = self.live = 0


class _Held:
    """Unloads a library when it dies.

    It knows the library by number only. If it held the tracker, the garbage collector would
    finalise both in any order wherever a library dies in a cycle, and LLVM would free its code
    twice, or after its session.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # modules are being cleared, this one perhaps too
            return
        _dead.append(self.number)
        _unload()


_linked: dict[int, tuple[Any, _Session]] = {}  # trackers of all that is loaded
_dead: deque[int] = deque()
_newest: _Session | None = None


def _unload() -> None:
    """Unload what died, unless a thread works with LLVM: that one does it afterwards.

    The garbage collector calls this, so it never waits. The process's end unloads nothing: threads
    of the pool still run.
    """
    while _dead and not sys.is_finalizing() and _lock.acquire(False):
        try:
            while _dead:
                tracker, session = _linked.pop(_dead.popleft())
                tracker.close()
                session.live -= 1
                if not session.live and session is not _newest:
                    session.jit.close()
        finally:
            _lock.release()


def link(obj: bytes, symbols: Sequence[str], given: Mapping[str, int] | None = None) -> Library:
    """Link an object file into this process and look up `symbols`.

    Undefined symbols resolve from `given`, addresses in this process, then from the process: libc,
    libm, pthread. Any thread may call this.
    Raises RuntimeError with the linker's words when a symbol is missing or the object is bad.
    """
    from llvmlite import binding

    try:
        with _lock:
            builder = binding.JITLibraryBuilder().add_object_img(obj).add_current_process()
            for symbol in symbols:
                builder.export_symbol(symbol)
            for symbol, address in (given or {}).items():
                builder.import_symbol(symbol, address)
            session, number = _session(), next(_serial)
            name = f"cubepy.{number}"  # ORC never frees a name, so none is used twice
            session.links += 1
            tracker = builder.link(session.jit, name)
            session.live += 1
            _linked[number] = tracker, session
            held = _Held(number)
    finally:
        _unload()
    return Library(name, {symbol: tracker[symbol] for symbol in symbols}, held)


def _session() -> _Session:
    """The session of the next library."""
    global _newest
    before = _newest
    if before is None or before.links >= LINKS_PER_SESSION:
        _newest = _Session()
        if before is not None and not before.live:
            before.jit.close()
    assert _newest is not None
    return _newest


def compile_text(ir: str, level: int = 2, has_locals: bool = False) -> bytes:
    """The object file of LLVM IR text for this machine, compiled now or remembered.

    `level` 0 and 1 run no IR passes, which is right for IR that was written in its final form;
    `has_locals`: but for those that inline what says so, put stack slots into registers and tidy up
    behind that.
    Raises RuntimeError with LLVM's words when the text does not parse or verify.
    """
    text = f"{llvm_versions()} {host_cpu()} {level} {has_locals}\n{ir}"
    return remembered(_name_of(ir), text, lambda: _compile_now(ir, level, has_locals))


def _name_of(ir: str) -> str:
    """The first function that a text defines for others."""
    found = re.search(r"^define (?!internal)[^@\n]*@([\w.]+)", ir, re.MULTILINE)
    return found[1] if found else "native code"


def _compile_now(ir: str, level: int, has_locals: bool) -> bytes:
    from llvmlite import binding

    with _lock:
        machine = _machine(level)
        module = binding.parse_assembly(ir)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        if level > 1:
            _optimise(module, machine, level)
        elif has_locals:
            _promote(module, machine)
        return bytes(machine.emit_object(module))


def _optimise(module: Any, machine: Any, level: int) -> None:
    from llvmlite import binding

    options = binding.create_pipeline_tuning_options(speed_level=level)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _promote(module: Any, machine: Any) -> None:
    from llvmlite import binding

    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    options = binding.create_pipeline_tuning_options(speed_level=1)
    passes.run(module, binding.create_pass_builder(machine, options))


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
