"""Which compiler serves which kind of target; loaded on first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cubepy.compilers.base import Compiler

_COMPILERS = {
    "cpu": ("cubepy.compilers.llvm.compiler", "LlvmCompiler"),
    "cuda": ("cubepy.compilers.cuda.compiler", "CudaCompiler"),
    "opencl": ("cubepy.compilers.opencl.compiler", "OpenclCompiler"),
    "metal": ("cubepy.compilers.metal.compiler", "MetalCompiler"),
    "hip": ("cubepy.compilers.hip.compiler", "HipCompiler"),
    "interpreter": ("cubepy.compilers.python.compiler", "PythonCompiler"),
}


@cache
def find_compiler(kind: str) -> Compiler:
    """The compiler of a kind of target."""
    module, name = _COMPILERS[kind]
    return getattr(import_module(module), name)()
