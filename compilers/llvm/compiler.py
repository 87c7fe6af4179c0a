"""The compiler of CPU targets: IR text, optimised LLVM IR, assembly, objects."""

from __future__ import annotations

from cubepy.artifact import Artifact, Fault
from cubepy.compilers.base import dumper, show, slots
from cubepy.compilers.llvm import toolchain
from cubepy.compilers.llvm.capabilities import capabilities
from cubepy.compilers.llvm.emit import emit
from cubepy.compilers.llvm.scratch import plan_scratch
from cubepy.config import get
from cubepy.ir.core import Kernel
from cubepy.options import Options
from cubepy.passes.legalise.pipeline import legalise
from cubepy.targets import Target


class LlvmCompiler:
    """See `compilers.base.Compiler`."""

    stages = ("llvm", "asm", "remarks")

    def build(self, kernel: Kernel, target: Target, options: Options) -> Artifact:
        """Machine code of this CPU, as a relocatable object."""
        text, faults, scratch = self._module(kernel, target, options, debug=False)
        for stage in self.stages:
            if stage in get("dump"):
                show(stage, kernel.name, self.text(kernel, target, options, stage))
        code = toolchain.to_object(text, target, options.level)
        dim = kernel.cube_dim
        return Artifact(
            target, kernel.name, code, slots(kernel), dim, faults, scratch_bytes=scratch
        )

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """Optimised LLVM IR or assembly, where comments name the lines of Python; or remarks."""
        from cubepy.compilers.llvm.listing import annotate_assembly, annotate_llvm

        if stage == "remarks":
            return self._remarks(kernel, target, options)
        module, _, _ = self._module(kernel, target, options, debug=True)
        if stage == "llvm":
            return annotate_llvm(toolchain.to_llvm(module, target, options.level))
        return annotate_assembly(toolchain.to_assembly(module, target, options.level))

    def _remarks(self, kernel: Kernel, target: Target, options: Options) -> str:
        """What became of the units, and of the loops and accesses in them; see `remarks`."""
        from cubepy.compilers.llvm.remarks import explain

        module, _, _ = self._module(kernel, target, options, debug=False)
        optimised = toolchain.to_llvm(module, target, options.level)
        return explain(kernel, capabilities(target, options.vectorise), optimised)

    @staticmethod
    def _module(
        kernel: Kernel, target: Target, options: Options, debug: bool
    ) -> tuple[str, tuple[Fault, ...], int]:
        triple, layout = toolchain.describe_machine(target)
        kernel, faults = legalise(kernel, capabilities(target, options.vectorise), dumper())
        fast = options.fast_math
        scratch = plan_scratch(kernel, options.scratch_limit)
        text = emit(
            kernel, target, scratch, triple=triple, layout=layout, fast_math=fast, debug=debug
        )
        return text, faults, scratch.nbytes
