"""Compilers: from verified KernelIR to the text and the code of a target."""
