"""The OpenCL compiler: KernelIR to OpenCL C."""
