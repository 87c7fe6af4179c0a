"""Benchmarks: CubePy and its peers on the same arrays, interleaved, beside the machine's limits.

`python -m bench` times, `python -m bench --check` compares all results with float64 references.
"""
