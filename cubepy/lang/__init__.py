"""The words of the kernel language: types, annotations, built-in functions and cube functions."""
