"""What LLVM knows of this machine's processor."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, dict[str, bool]]:
    """LLVM's name of the processor, and each of its features with whether it is there."""
    from llvmlite import binding

    return str(binding.get_host_cpu_name()), dict(binding.get_host_cpu_features())


def llvm_versions() -> dict[str, str]:
    """The versions of llvmlite and of the LLVM inside it."""
    import llvmlite
    from llvmlite import binding

    return {"llvmlite": llvmlite.__version__, "LLVM": ".".join(map(str, binding.llvm_version_info))}
