"""From a Python function and a signature to KernelIR, by staged evaluation of its AST."""
