"""The autotuner: measures the variants of a kernel and remembers the fastest per hardware.

Import it as `cubepy.autotune`, never as `autotune`.
"""
