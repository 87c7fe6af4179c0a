"""The runtime of the interpreter: Python code on host memory, one unit after the other."""
