"""The peers: which are installed, how many threads they use, and arrays to and from them."""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np

from cubepy.runtimes.native.pool import get_pool, usable_cores

NAMES = ("numpy", "numba", "torch")


def find(name: str) -> ModuleType | None:
    """The peer's module, or None where it is not installed."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def absent() -> list[str]:
    """The peers that are not installed."""
    return [name for name in NAMES if importlib.util.find_spec(name) is None]


def all_cores() -> int:
    """The threads that everybody gets unless set otherwise."""
    return usable_cores()


def set_threads(threads: int) -> None:
    """Give CubePy, numba and torch the same number of threads. (NumPy's loops use one.)"""
    get_pool().set_threads(threads)
    if torch := find("torch"):
        torch.set_num_threads(threads)
    if numba := find("numba"):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


def as_torch(array: np.ndarray) -> Any:
    """The same memory as a torch tensor."""
    torch = find("torch")
    assert torch is not None
    return torch.from_numpy(array)


def as_numpy(value: Any) -> np.ndarray:
    """The result of any contender as a NumPy array."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def find_prebuilt(name: str) -> Any | None:
    """A prebuilt kernel, or None where this version has none of that name."""
    try:
        kernels = importlib.import_module("cubepy.kernels")
    except ModuleNotFoundError:
        return None
    return getattr(kernels, name, None)
