"""Prebuilt kernels, written in the language: pooling, reductions, elementwise functions."""

from cubepy.kernels.elementwise import map
from cubepy.kernels.pool import max_pool1d, max_pool2d
from cubepy.kernels.reduce import max, min, sum

__all__ = ["map", "max", "max_pool1d", "max_pool2d", "min", "sum"]
