"""The Metal compiler: KernelIR to the Metal Shading Language."""
