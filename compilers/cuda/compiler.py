"""The compiler of CUDA targets: CUDA C, PTX, machine code; no driver and no device is needed."""

from __future__ import annotations

from cubepy.compilers.cstyle.compiler import Source, SourceCompiler
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cuda import toolchain
from cubepy.compilers.cuda.dialect import dialect
from cubepy.ir.core import Kernel
from cubepy.options import Options
from cubepy.targets import Target


class CudaCompiler(SourceCompiler):
    """See `compilers.base.Compiler`."""

    stages = ("source", "ptx", "sass", "resources")

    def dialect(self, target: Target) -> Dialect:
        return dialect(target.arch)

    def code(self, source: Source, target: Target) -> bytes:
        """A cubin for exactly this architecture."""
        return toolchain.to_cubin(source.text, target, source.kernel.attribute("registers", None))

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """CUDA C, PTX, what the machine code uses, or SASS where nvdisasm is installed."""
        source = Source(kernel, self.dialect(target))
        registers = kernel.attribute("registers", None)
        if stage == "ptx":
            return toolchain.to_ptx(source.text, target)
        if stage == "sass":
            return toolchain.to_sass(source.text, target, registers)
        if stage == "resources":
            found = toolchain.resources(source.text, target, source.entry, registers)
            return found.text(source.shared_bytes)
        return source.text
