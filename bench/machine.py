"""The machine and the versions that numbers belong to."""

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

from bench import peers

PACKAGES = ("numpy", "numba", "llvmlite", "torch")
SYSTEM_CPU = Path("/sys/devices/system/cpu")


def describe() -> dict[str, str]:
    """Names and versions, in the order in which a report shows them."""
    return {
        "cpu": f"{_cpu_name()}, {_llvm_cpu()}",
        "cores": f"{peers.all_cores()} usable of {os.cpu_count()}",
        "caches": _caches(),
        "governor": _read(SYSTEM_CPU / "cpu0/cpufreq/scaling_governor") or "not reported",
        "huge pages": _bracketed(_read(Path("/sys/kernel/mm/transparent_hugepage/enabled"))),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "load": _load(),
        "cubepy": f"{_version('cubepy-jit')}, commit {_commit()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
    }


def _cpu_name() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _llvm_cpu() -> str:
    from cubepy.runtimes.native.host import host_cpu

    return host_cpu()[0]


def _caches() -> str:
    found = []
    for index in sorted((SYSTEM_CPU / "cpu0/cache").glob("index*")):
        if _read(index / "type") != "Instruction":
            found.append(f"L{_read(index / 'level')} {_read(index / 'size')}")
    return ", ".join(found) or "not reported"


def _bracketed(text: str) -> str:
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else "not reported"


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f} at the start" if hasattr(os, "getloadavg") else "not reported"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _commit() -> str:
    try:
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        folder = Path(__file__).parent
        return subprocess.check_output(command, cwd=folder, text=True, stderr=-3).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
