"""What a launch on a GPU consists of, part by part: `python -m bench.gpu_launch_parts`.

The driver's function is called by native code that does ever more of what a launch does: nothing
else, in a compiled loop; with other instructions between two calls; from Python; with the GIL given
up and taken again; with a look at the thread's context. Each row has microseconds for one launch,
and those of them that went by inside the driver's function, both medians over rounds that take
turns. So it shows what CubePy adds, what a call from Python adds, and by how much the driver itself
is slower where Python ran in between: the compiled loop has the caches for itself.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.gpu_launch import ALPHA, UNITS, N, axpy
from cubepy.runtimes.cuda.driver import address_of, driver
from cubepy.runtimes.native.launching.callables import function
from cubepy.runtimes.native.linker import Library, compile_text, link

BATCH, ROUNDS = 100, 40
LAUNCH, CONTEXT, KERNEL, STREAM, PLACES, NONE, CYCLES, EMPTY, LAUNCH_EX, CONFIG, EXTRA, SWEPT = (
    range(12)
)
"""Words that native code reads: functions of the driver, their arguments, Python's None, the cycles
inside the driver's function, a function of Python that does nothing, and memory to look through."""
_DECLARATIONS = """
@words = global [16 x i64] zeroinitializer
declare i64 @llvm.readcyclecounter()
declare i64 @PyEval_SaveThread()
declare void @PyEval_RestoreThread(i64)
declare void @Py_IncRef(i64)
declare void @Py_DecRef(i64)
declare i64 @PyObject_Vectorcall(i64, i64, i64, i64)
"""
_WORD = "  %{name} = load i64, ptr getelementptr ([16 x i64], ptr @words, i64 0, i64 {which})\n"
_LAUNCH = """
  %{k}before = call i64 @llvm.readcyclecounter()
  %{k}status = call i32 {call}
  %{k}after = call i64 @llvm.readcyclecounter()
  %{k}took = sub i64 %{k}after, %{k}before
  %{k}sum = load i64, ptr getelementptr ([16 x i64], ptr @words, i64 0, i64 6)
  %{k}more = add i64 %{k}sum, %{k}took
  store i64 %{k}more, ptr getelementptr ([16 x i64], ptr @words, i64 0, i64 6)
"""
_PLAIN = (
    f"%pLAUNCH(i64 %KERNEL, i32 {N // UNITS}, i32 1, i32 1, i32 {UNITS}, i32 1, i32 1, i32 0, "
    "i64 %STREAM, i64 {places}, i64 {extra})"
)
_BY_PLACES = _PLAIN.format(places="%PLACES", extra="0")
_BY_BUFFER = _PLAIN.format(places="0", extra="%EXTRA")
_EX = "%pLAUNCH_EX(i64 %CONFIG, i64 %KERNEL, i64 %PLACES, i64 0)"
_NAMES = {
    "LAUNCH": LAUNCH,
    "CONTEXT": CONTEXT,
    "KERNEL": KERNEL,
    "STREAM": STREAM,
    "PLACES": PLACES,
    "NONE": NONE,
    "EMPTY": EMPTY,
    "LAUNCH_EX": LAUNCH_EX,
    "CONFIG": CONFIG,
    "EXTRA": EXTRA,
    "SWEPT": SWEPT,
}


def _head() -> str:
    loads = "".join(_WORD.format(name=name, which=which) for name, which in _NAMES.items())
    functions = ("LAUNCH", "CONTEXT", "LAUNCH_EX")
    return loads + "".join(f"  %p{name} = inttoptr i64 %{name} to ptr\n" for name in functions)


_SAVE = "  %state = call i64 @PyEval_SaveThread()\n"
_RESTORE = "  call void @PyEval_RestoreThread(i64 %state)\n"
_CURRENT = "  %room = alloca i64\n  %current = call i32 %pCONTEXT(ptr %room)\n"
_PYTHON = """
  %found = call i64 @PyObject_Vectorcall(i64 %EMPTY, i64 0, i64 0, i64 0)
  call void @Py_DecRef(i64 %found)
"""
_SWEEP = """
  br label %line
line:
  %at = phi i64 [0, %body], [%on, %line]
  %address = add i64 %SWEPT, %at
  %place = inttoptr i64 %address to ptr
  %read = load volatile i64, ptr %place
  %on = add i64 %at, 64
  %further = icmp slt i64 %on, 65536
  br i1 %further, label %line, label %swept
swept:
"""


def _launch(call: str = _BY_PLACES) -> str:
    return _LAUNCH.format(k="", call=call)


def _called(name: str, body: str) -> str:
    """A function of Python's that does `body`."""
    end = "  call void @Py_IncRef(i64 %NONE)\n  ret i64 %NONE\n"
    return f"define i64 @{name}(i64 %self, i64 %args, i64 %count) {{\n{_head()}{body}{end}}}\n"


def _looped(name: str, body: str, last: str = "body") -> str:
    """A loop of `body`, which ends in the block `last`."""
    return f"""define i64 @{name}(i64 %times) {{
{_head()}  br label %body
body:
  %k = phi i64 [0, %0], [%next, %{last}]
{body}
  %next = add i64 %k, 1
  %again = icmp slt i64 %next, %times
  br i1 %again, label %body, label %done
done:
  ret i64 0
}}
"""


LOOPS = {
    "compiled loop": _looped("plain", _launch()),
    "compiled loop, cuLaunchKernelEx": _looped("ex", _launch(_EX)),
    "compiled loop, arguments in a buffer": _looped("buffer", _launch(_BY_BUFFER)),
    "compiled loop, GIL given up": _looped("gil", _SAVE + _launch() + _RESTORE),
    "compiled loop, 64 KiB read between": _looped("swept", _SWEEP + _launch(), "swept"),
    "compiled loop, Python between": _looped("python", _PYTHON + _launch()),
    "compiled loop, Python alone": _looped("alone", _PYTHON),
}
CALLED = {
    "from Python: nothing": _called("c_nothing", ""),
    "from Python: launch": _called("c_launch", _launch()),
    "from Python: launch, GIL": _called("c_gil", _SAVE + _launch() + _RESTORE),
    "from Python: launch, GIL, context": _called(
        "c_context", _CURRENT + _SAVE + _launch() + _RESTORE
    ),
}
_LOOP_NAMES = ("plain", "ex", "buffer", "gil", "swept", "python", "alone")
_CALL_NAMES = ("c_nothing", "c_launch", "c_gil", "c_context")


def native() -> Library:
    """The functions, linked."""
    text = _DECLARATIONS + "".join(LOOPS.values()) + "".join(CALLED.values())
    return link(compile_text(text), ("words", *_LOOP_NAMES, *_CALL_NAMES))


class Launches:
    """Everything that is called, by name, and the words that it reads. `keeps`: what these hold."""

    def __init__(self, words: dict[int, int], keeps: Any) -> None:
        self._library, self._keeps = native(), keeps
        address = self._library.address
        self._words = (ctypes.c_int64 * 16).from_address(address["words"])
        self._swept = (ctypes.c_int64 * 8192)()
        words = words | {NONE: id(None), EMPTY: id(_nothing), SWEPT: ctypes.addressof(self._swept)}
        for which, value in words.items():
            self._words[which] = value
        loop = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)  # which keeps the GIL
        self.loops = {
            name: loop(address[symbol]) for name, symbol in zip(LOOPS, _LOOP_NAMES, strict=True)
        }
        self.calls: dict[str, Callable[..., Any]] = {
            name: function(symbol, address[symbol])
            for name, symbol in zip(CALLED, _CALL_NAMES, strict=True)
        }

    def cycles(self) -> int:
        """Cycles inside the driver's function since the last time."""
        found, self._words[CYCLES] = self._words[CYCLES], 0
        return found


def _nothing() -> None:
    """What a compiled loop calls so that Python runs between two launches."""


def of_driver(x: Any, y: Any, out: Any) -> tuple[dict[int, int], Any]:
    """The words of a launch of `axpy`, and what they point to."""
    import torch

    api = driver()
    prepared, matcher = axpy.over(N)._prepared((ALPHA, x, y, out), {})
    addresses = {name: memory.address for name, memory in matcher.memories.items()}
    block = prepared.filled(addresses, matcher.scalars, "axpy")
    code = prepared.compiled.loaded
    kernel, places = code.function(0), code.parameters(block)
    stream = torch.cuda.current_stream().cuda_stream
    buffer, size, packed = _packed(api, kernel, block, len(places))
    extra = (ctypes.c_int64 * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
    config = (ctypes.c_int32 * 14)(N // UNITS, 1, 1, UNITS, 1, 1, 0)
    ctypes.c_int64.from_buffer(config, 32).value = stream
    names = {LAUNCH: "cuLaunchKernel", LAUNCH_EX: "cuLaunchKernelEx", CONTEXT: "cuCtxGetCurrent"}
    found = {k: address_of(name) for k, name in names.items()}
    words = {
        **found,
        KERNEL: int(kernel),
        STREAM: stream,
        PLACES: ctypes.addressof(places),
        CONFIG: ctypes.addressof(config),
        EXTRA: ctypes.addressof(extra),
    }
    return words, (prepared, block, places, buffer, size, packed, extra, config)


def _packed(api: Any, kernel: Any, block: Any, count: int) -> tuple[Any, Any, list[Any]]:
    """The arguments as they lie behind each other, and how many bytes these are."""
    rows = [api.cuFuncGetParamInfo(kernel, k)[1:] for k in range(count)]
    end = max(offset + size for offset, size in rows)
    buffer = ctypes.create_string_buffer(end)
    for k, (offset, size) in enumerate(rows):
        ctypes.memmove(ctypes.addressof(buffer) + offset, ctypes.addressof(block) + 8 * k, size)
    return buffer, ctypes.c_size_t(end), rows


def of_cubepy(x: Any, y: Any, out: Any) -> dict[str, Callable[[], Any]]:
    """CubePy's own launches, on torch's arrays and its own."""
    launcher = axpy.over(N)
    own = [cp.asarray(v, copy=True) for v in (x, y, out)]
    return {
        "CubePy, bound": launcher.bind(ALPHA, x, y, out),
        "CubePy, bound, its own arrays": launcher.bind(ALPHA, *own),
        "CubePy, a kept launcher": lambda: launcher(ALPHA, x, y, out),
        "CubePy, kept, its own arrays": lambda: launcher(ALPHA, *own),
    }


def measure(
    launches: Launches, ours: dict[str, Callable[[], Any]], wait: Callable[[], Any]
) -> dict[str, list[tuple[float, float]]]:
    """Microseconds of a launch, and cycles inside the driver's function, by round."""
    calls = launches.calls | ours
    names = [*launches.loops, *calls]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for turn in range(ROUNDS + 2):
        for name in names:
            wait()
            launches.cycles()
            loop, call = launches.loops.get(name), calls.get(name)
            began = time.perf_counter()
            if loop is not None:
                loop(BATCH)
            else:
                assert call is not None
                for _ in range(BATCH):
                    call()
            took = 1e6 * (time.perf_counter() - began) / BATCH
            if turn > 1:
                found[name].append((took, launches.cycles() / BATCH))
    wait()
    return found


def cycles_of_a_microsecond(launches: Launches) -> float:
    """How fast the counter runs: by a loop whose time is nearly all the driver's."""
    loop = launches.loops["compiled loop"]
    launches.cycles()
    began = time.perf_counter()
    loop(2000)
    return launches.cycles() / (1e6 * (time.perf_counter() - began))


def main() -> None:
    """Print the table, or write JSON."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    x, y, out = (torch.randn(N, device="cuda") for _ in range(3))
    launches, ours = Launches(*of_driver(x, y, out)), of_cubepy(x, y, out)
    for name, loop in launches.loops.items():
        out.zero_()
        loop(1)
        torch.cuda.synchronize()
        if "alone" not in name and not torch.allclose(out, ALPHA * x + y, rtol=1e-6):
            raise SystemExit(f"{name} computes something else")
    per_us = cycles_of_a_microsecond(launches)
    torch.cuda.synchronize()
    found = measure(launches, ours, torch.cuda.synchronize)
    rows = {
        name: [statistics.median(t) for t in zip(*times, strict=True)]
        for name, times in found.items()
    }
    for name, (us, cycles) in rows.items():
        inside = f"{cycles / per_us:7.2f} us inside the driver" if cycles else ""
        print(f"{name:40} {us:7.2f} us {inside}")
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "cycles_per_us": per_us, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
