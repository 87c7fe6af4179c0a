"""Differential fuzzing: random kernels of the language, on every device and optimisation level."""
