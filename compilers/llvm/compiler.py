"""The compiler of CPU targets: IR text, optimised LLVM IR, assembly, objects."""

from __future__ import annotations

from cubepy.artifact import Artifact, Fault
from cubepy.compilers.base import Options, show, slots
from cubepy.compilers.llvm import toolchain
from cubepy.compilers.llvm.emit import emit
from cubepy.compilers.llvm.legalize import legalize
from cubepy.config import get
from cubepy.ir.core import Kernel
from cubepy.targets import Target


class LlvmCompiler:
    """See `compilers.base.Compiler`."""

    stages = ("llvm", "asm")

    def build(self, kernel: Kernel, target: Target, options: Options) -> Artifact:
        """Machine code of this CPU, as a relocatable object."""
        text, faults = self._module(kernel, target, options, debug=False)
        for stage in self.stages:
            if stage in get("dump"):
                show(stage, kernel.name, self.text(kernel, target, options, stage))
        code = toolchain.to_object(text, target, get("opt_level"))
        return Artifact(target, kernel.name, code, slots(kernel), kernel.cube_dim, faults)

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """Optimised LLVM IR or assembly; comments name the lines of Python."""
        from cubepy.compilers.llvm.listing import annotate_assembly, annotate_llvm

        module, _ = self._module(kernel, target, options, debug=True)
        level = get("opt_level")
        if stage == "llvm":
            return annotate_llvm(str(toolchain.optimise(module, target, level)))
        return annotate_assembly(toolchain.to_assembly(module, target, level))

    @staticmethod
    def _module(
        kernel: Kernel, target: Target, options: Options, debug: bool
    ) -> tuple[str, tuple[Fault, ...]]:
        triple, layout = toolchain.describe_machine(target)
        kernel, faults = legalize(kernel, target)
        fast = options.fast_math
        text = emit(kernel, target, triple=triple, layout=layout, fast_math=fast, debug=debug)
        return text, faults
