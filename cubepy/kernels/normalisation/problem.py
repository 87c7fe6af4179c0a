"""What is normalised: rows of an array, with weights along them."""

from __future__ import annotations

from cubepy.ir.types import DType
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Normalisation:
    """One way to normalise rows: `name` is softmax, log_softmax, layer_norm or rms_norm.

    `dtype` is what it is computed in.
    """

    name: str
    dtype: DType

    @property
    def is_softmax(self) -> bool:
        """Whether rows are normalised by their maximum and the sum of exponentials."""
        return self.name.endswith("softmax")


@dataclass(frozen=True, slots=True)
class RowTiling:
    """How a kernel goes through rows: `line` elements at a time, `units` units in a cube, `band`
    rows for a cube.
    `unroll`: lines side by side, to hide the time
    that one operation takes. `held`: lines of a row that each unit keeps in registers, 0 to read
    the row again; `is_whole`: these are all lines, and whole.
    """

    line: int
    units: int
    band: int
    unroll: int = 1
    held: int = 0
    is_whole: bool = False
