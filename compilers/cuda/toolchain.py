"""NVRTC, in-process through cuda-bindings, and nvdisasm. Neither needs a driver."""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from cubepy.compilers.cuda.resources import Resources, losses_of, resources_of
from cubepy.errors import fail
from cubepy.meanwhile import note_compilation
from cubepy.targets import Target

INSTALL = "pip install 'cubepy-jit[cuda]'"
OPTIONS = (
    "--std=c++17",
    "--fmad=false",  # contraction is a pass of the IR, the same for all devices
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
    "--extra-device-vectorization",
    "-default-device",
)


def to_cubin(source: str, target: Target, registers: int | None = None) -> bytes:
    """Machine code for the exact architecture; it also checks inline assembly.

    `registers`: at most so many for a unit. Where ptxas gives up performance, as by serialising
    `wgmma`, a `RuntimeWarning` says so.
    """
    code, log = _compile(source, target, _exactly(target, registers), "CUBIN")
    for text in losses_of(log):
        warnings.warn(f"ptxas loses performance: {text}", RuntimeWarning, stacklevel=2)
    return code


def resources(source: str, target: Target, entry: str, registers: int | None = None) -> Resources:
    """What the machine code of the kernel `entry` uses."""
    options = (*_exactly(target, registers), "--ptxas-options=-v")
    return resources_of(_compile(source, target, options, "CUBIN")[1], entry)


def _exactly(target: Target, registers: int | None) -> tuple[str, ...]:
    """The architecture, and the limit of registers, which launch bounds would override."""
    arch = f"--gpu-architecture={target.arch}"
    if registers is None:
        return (arch,)
    most = f"--ptxas-options=--maxrregcount={registers}"
    return (arch, "--ptxas-options=--override-directive-values", most)


def to_ptx(source: str, target: Target) -> str:
    """PTX for the architecture; NVRTC ends it with a zero byte."""
    virtual = f"--gpu-architecture=compute_{target.version}{target.variant}"
    return _compile(source, target, (virtual,), "PTX")[0].rstrip(b"\0").decode()


def to_sass(source: str, target: Target, registers: int | None = None) -> str:
    """The machine code as text, by nvdisasm."""
    tool = find_nvdisasm()
    if tool is None:
        raise _missing("nvdisasm", target, "pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(to_cubin(source, target, registers))
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True)
    return done.stdout


def version() -> str:
    """The version of NVRTC; empty where it is missing."""
    nvrtc = _nvrtc()
    if nvrtc is None:
        return ""
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def find_nvdisasm() -> str | None:
    """The path of nvdisasm: of its wheel, or of a toolkit on the PATH."""
    try:
        pathfinder = import_module("cuda.pathfinder")
    except ImportError:
        return None
    return pathfinder.find_nvidia_binary_utility("nvdisasm")


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """The bindings, once NVRTC itself has answered; None where one of the two is missing."""
    try:
        nvrtc = import_module("cuda.bindings.nvrtc")
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # the library's absence is a RuntimeError
        return None
    return nvrtc


def _missing(tool: str, target: Target, command: str) -> Exception:
    return fail(
        "E310", op=f"`{tool}`", target=target, reason="it is not installed", suggestion=command
    )


def _compile(source: str, target: Target, chosen: tuple[str, ...], kind: str) -> tuple[bytes, str]:
    """What it makes of the source, and its log."""
    nvrtc = _nvrtc()
    if nvrtc is None:
        raise _missing("NVRTC", target, INSTALL)
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    try:
        options = [o.encode() for o in (*OPTIONS, *chosen)]
        note_compilation()
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _refused(nvrtc, program, target)
        return _result(nvrtc, program, kind), _log(nvrtc, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _result(nvrtc: Any, program: Any, kind: str) -> bytes:
    _, size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)
    data = _room(size)
    getattr(nvrtc, f"nvrtcGet{kind}")(program, data)
    return data[:size]


def _log(nvrtc: Any, program: Any) -> str:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = _room(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.rstrip(b"\0 ").decode(errors="replace").strip()


def _room(size: int) -> bytes:
    """Bytes that the bindings write to: more than one, as Python has each single byte only once and
    would have another value for it from then on, also in what it compiles."""
    return b" " * (size + 1)


def _refused(nvrtc: Any, program: Any, target: Target) -> Exception:
    """NVRTC's own words; its first error is what matters."""
    lines = _log(nvrtc, program).splitlines() or ["no message"]
    first = next((line for line in lines if "error" in line), lines[0])
    return fail(
        "E310",
        op="the generated source",
        target=target,
        reason=f"NVRTC says: {first}",
        suggestion="if the architecture is one that NVRTC knows, this is a defect of CubePy",
    )
