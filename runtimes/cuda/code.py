"""Loaded kernels: a cubin's function in each context where it is launched."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from cubepy.artifact import Artifact
from cubepy.errors import DeviceError
from cubepy.runtimes.cuda.contexts import PRIMARY, Contexts
from cubepy.runtimes.cuda.driver import check, driver, is_usable
from cubepy.runtimes.cuda.launches import number_of

STATIC_SHARED_BYTES = 48 << 10
"""More than this must be asked for, function by function."""


class Code:
    """A kernel of the device whose `contexts` these are; it is unloaded when it dies."""

    is_usable = staticmethod(is_usable)

    def __init__(self, artifact: Artifact, contexts: Contexts | None = None) -> None:
        self._contexts = contexts
        self._modules: dict[int, Any] = {}
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
            found = self._functions[context] = self._load(context)
        return found

    def __del__(self) -> None:
        """Other libraries' contexts unload what is in them when they end; they may have ended."""
        module = self._modules.get(PRIMARY)
        if module is None or self._contexts is None or not self.is_usable():
            return
        with suppress(DeviceError), self._contexts.enter(is_own=True):  # raised where one waits
            driver().cuModuleUnload(module)

    def parameters(self, block: Any) -> Any:
        """Pointers to the parameters: words of the block, which lives until the call, or tensor
        maps that such words point to."""
        start = ctypes.addressof(block)
        if not self._maps:
            return self._pointers(*map(start.__add__, self._offsets))
        return self._pointers(
            *[block[k] if k in self._maps else start + 8 * k for k in self._places]
        )

    def _load(self, context: int) -> Any:
        api = driver()
        module = check("cuModuleLoadData", api.cuModuleLoadData(self._cubin))
        self._modules[context] = module
        name = self.entry.encode()
        function = check("cuModuleGetFunction", api.cuModuleGetFunction(module, name))
        if self.shared_bytes > STATIC_SHARED_BYTES:
            most = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = api.cuFuncSetAttribute(function, most, self.shared_bytes)
            check("cuFuncSetAttribute", asked)
        return function
