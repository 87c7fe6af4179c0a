"""The same steps with the peers that are installed: Numba and torch, and CubePy's own library.

Every function here takes arrays and makes a contender for them; what can be prepared is prepared.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.cli.demo.steps import CONTRAST, EXPOSURE, POOL, Contender

_WHITE = 1 - math.exp(-EXPOSURE)


def installed() -> list[str]:
    """The peers that are here, NumPy aside."""
    return [name for name in ("numba", "torch") if importlib.util.find_spec(name)]


def set_threads(threads: int) -> None:
    """Give the peers as many threads as CubePy has."""
    for name in installed():
        module = importlib.import_module(name)
        module.set_num_threads(min(threads, _most_threads(name, module)))


def _most_threads(name: str, module: Any) -> int:
    return module.config.NUMBA_NUM_THREADS if name == "numba" else 1 << 10


def find_peers(step: str) -> dict[str, Contender]:
    """Contenders for a step by the name of the peer."""
    found: dict[str, Contender] = {}
    for name in installed():
        found[name] = {"numba": numba_contenders, "torch": torch_contenders}[name]()[step]
    prebuilt = find_prebuilt(step)
    return {**({"CubePy max_pool2d": prebuilt} if prebuilt else {}), **found}


def find_prebuilt(step: str) -> Contender | None:
    """CubePy's prebuilt function for the step, if there is one."""
    if step != "pool":
        return None
    try:
        kernels = importlib.import_module("cubepy.kernels")
    except ModuleNotFoundError:
        return None
    max_pool2d: Callable[..., Any] | None = getattr(kernels, "max_pool2d", None)
    return max_pool2d and (lambda x, out: max_pool2d(x, POOL, out=out))


# Numba: loops over `prange`, contraction allowed as in CubePy


def numba_contenders() -> dict[str, Contender]:
    """Compiled on their first call."""
    from cubepy.cli.demo import numba_steps as steps

    return {
        "tone": lambda x, out: steps.develop(x.ravel(), out.ravel(), EXPOSURE, CONTRAST, _WHITE),
        "edges": steps.edges,
        "contrast": lambda x, out: steps.stretch(x.ravel(), out.ravel()),
        "pool": lambda x, out: steps.pool(x, out, POOL),
    }


# torch: the fastest plain expression, into `out=` where the function has it


def torch_contenders() -> dict[str, Contender]:
    """On the same memory as the NumPy arrays."""
    return {
        "tone": _torch_tone,
        "edges": _torch_edges,
        "contrast": _torch_contrast,
        "pool": _torch_pool,
    }


def _torch_tone(x: np.ndarray, out: np.ndarray) -> None:
    import torch

    result = torch.from_numpy(out)
    torch.pow(torch.from_numpy(x), CONTRAST, out=result)
    result.mul_(-EXPOSURE).exp_().neg_().add_(1).mul_(1 / _WHITE)


def _torch_edges(x: np.ndarray, out: np.ndarray) -> None:
    import torch

    across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    weights = torch.stack([across, across.T])[:, None]
    gradient = torch.nn.functional.conv2d(torch.from_numpy(x)[None, None], weights)[0]
    torch.hypot(gradient[0], gradient[1], out=torch.from_numpy(out))


def _torch_contrast(x: np.ndarray, out: np.ndarray) -> None:
    import torch

    source, result = torch.from_numpy(x), torch.from_numpy(out)
    low, high = torch.aminmax(source)
    torch.sub(source, low, out=result)
    result.mul_(1 / (high - low))


def _torch_pool(x: np.ndarray, out: np.ndarray) -> None:
    import torch

    pooled = torch.nn.functional.max_pool2d(torch.from_numpy(x), POOL)
    torch.from_numpy(out).copy_(pooled)
