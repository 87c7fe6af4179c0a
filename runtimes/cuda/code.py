"""Loaded kernels: a cubin's function in each context where it is launched."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from cubepy.artifact import Artifact
from cubepy.runtimes.cuda.driver import check, driver
from cubepy.runtimes.cuda.launches import number_of

STATIC_SHARED_BYTES = 48 << 10
"""More than this must be asked for, function by function."""


class Code:
    """A kernel of a device. No module is unloaded before the process ends: a graph that captured a
    launch holds the function, and outlives the kernel where it was made in a function."""

    def __init__(self, artifact: Artifact) -> None:
        self.entry = artifact.entry
        self.number = number_of(artifact.entry)
        self.dim = artifact.cube_dim
        self.shared_bytes = artifact.shared_bytes
        self.counts = len(artifact.slots)
        self._places = [*range(self.counts), *([self.counts + 3] if artifact.faults else [])]
        self._offsets = [8 * k for k in self._places]
        self._maps = {k for k, slot in enumerate(artifact.slots) if slot.kind.is_copied}
        self.takes_maps = bool(self._maps)
        self._pointers = ctypes.c_void_p * max(1, len(self._places))
        self._cubin = artifact.code
        self._functions: dict[int, Any] = {}

    def function(self, context: int) -> Any:
        """The function in the current context, whose key is `context`."""
        found = self._functions.get(context)
        if found is None:
            found = self._functions[context] = self._load()
        return found

    def parameters(self, block: Any) -> Any:
        """Pointers to the parameters: words of the block, which lives until the call, or tensor
        maps that such words point to."""
        start = ctypes.addressof(block)
        if not self._maps:
            return self._pointers(*map(start.__add__, self._offsets))
        return self._pointers(
            *[block[k] if k in self._maps else start + 8 * k for k in self._places]
        )

    def config(self, grid: Sequence[int]) -> Any:
        """The driver's description of a launch over a grid."""
        found = driver().CUlaunchConfig()
        found.gridDimX, found.gridDimY, found.gridDimZ = grid
        found.blockDimX, found.blockDimY, found.blockDimZ = self.dim
        found.sharedMemBytes = self.shared_bytes
        return found

    def _load(self) -> Any:
        api = driver()
        module = check("cuModuleLoadData", api.cuModuleLoadData(self._cubin))
        name = self.entry.encode()
        function = check("cuModuleGetFunction", api.cuModuleGetFunction(module, name))
        if self.shared_bytes > STATIC_SHARED_BYTES:
            most = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = api.cuFuncSetAttribute(function, most, self.shared_bytes)
            check("cuFuncSetAttribute", asked)
        return function
