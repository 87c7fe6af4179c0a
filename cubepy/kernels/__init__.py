"""Prebuilt kernels, written in the language: pooling, reductions, elementwise functions."""

from cubepy.kernels.pool import max_pool1d, max_pool2d

__all__ = ["max_pool1d", "max_pool2d"]
