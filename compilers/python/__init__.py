"""The compiler of the interpreter: KernelIR as Python source with a map to the user's lines."""
