"""Results in the kind of other libraries' arrays are on the GPU of the arguments."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cubepy.ir.types import f32
from cubepy.kernels.calls.libraries import CudaLibrary, Shape


class Numba:
    """numba.cuda in part: arrays are on the GPU that is current."""

    def __init__(self) -> None:
        self.current = 0
        self.cuda = SimpleNamespace(gpus=_Gpus(self), device_array=self._make)

    @contextmanager
    def entered(self, gpu: int) -> Generator[None]:
        before, self.current = self.current, gpu
        try:
            yield
        finally:
            self.current = before

    def _make(self, extents: tuple[int, ...], dtype: Any) -> Any:
        return SimpleNamespace(gpu=self.current, shape=extents, dtype=np.dtype(dtype))


class _Gpus:
    """Each is a context in which it is current."""

    def __init__(self, numba: Numba) -> None:
        self._numba = numba

    def __getitem__(self, gpu: int) -> Any:
        return self._numba.entered(gpu)


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("gpu", [0, 1])
def test_numbas_arrays(current: int, gpu: int, monkeypatch: pytest.MonkeyPatch):
    numba = Numba()
    numba.current = current
    monkeypatch.setitem(sys.modules, "numba", numba)
    made = CudaLibrary(f"cuda:{gpu}", "numba").empty(Shape((3, 4), f32))
    assert (made.gpu, made.shape, made.dtype) == (gpu, (3, 4), np.dtype("f4"))
    assert numba.current == current
