"""Arrays and peers on a GPU, which torch makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def torch() -> Any:
    import torch

    return torch


def random(*shape: int, dtype: Any = None) -> Any:
    """Normal numbers."""
    return torch().randn(*shape, device="cuda", dtype=dtype)


def worst(found: Any, expected: Any) -> float:
    """The largest difference over the largest value, in f64."""
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())


def compiled(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """`function` of these arguments by `torch.compile`, compiled for their very shapes."""
    torch()._dynamo.reset()  # of one code object it compiles eight, and runs others as they are
    made = torch().compile(function, dynamic=False)
    return lambda: made(*args)
