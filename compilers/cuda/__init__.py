"""The CUDA compiler: KernelIR to CUDA C, and by NVRTC to PTX and machine code."""
