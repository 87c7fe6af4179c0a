"""Wrong kernels and launches by name: `@case` registers a function that must raise a `cp.Error`."""

from collections.abc import Callable

import numpy as np

Case = Callable[[], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    assert function.__name__ not in CASES, f"two cases are called {function.__name__}"
    CASES[function.__name__] = function
    return function


def floats(*shape: int) -> np.ndarray:
    """Ones in f32; 8 of them where no shape is given."""
    return np.ones(shape or (8,), np.float32)


def integers(*shape: int) -> np.ndarray:
    """Ones in i32."""
    return np.ones(shape or (8,), np.int32)
