"""The LLVM compiler: KernelIR to machine code of a CPU."""
