"""KernelIR: types, the op table, data, text form, verifier. Standard library only."""
