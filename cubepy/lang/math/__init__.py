"""Elementary functions written in the kernel language itself, one expansion per element type.

They are branch-free per lane, so the same text serves scalars and lines, and every backend. The
contract is OpenCL's full profile; each docstring states the method and the measured error.
`table` lists them.
"""
