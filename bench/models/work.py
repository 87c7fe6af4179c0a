"""One line of the tables: what CubePy and torch compute of the same arrays, and its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a device is given: a GPU's share of images and tokens fills it.

    `most` bounds all extents where only answers are compared.
    """

    images: int
    sequences: int
    tokens: int
    prompt: int
    rows: int
    most: int | None = None

    def of(self, extent: int) -> int:
        """The extent, or what stands for it in a comparison."""
        return extent if self.most is None else min(extent, self.most)


CPU = Sizes(images=1, sequences=1, tokens=128, prompt=128, rows=4)
GPU = Sizes(images=32, sequences=32, tokens=512, prompt=4096, rows=64)
SMALL = Sizes(images=2, sequences=2, tokens=24, prompt=24, rows=3, most=24)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Random tensors of a device, of `dtype` unless a work says otherwise."""

    torch: Any
    device: str
    dtype: Any
    sizes: Sizes

    def normal(self, *shape: int, dtype: Any = None) -> Any:
        """Normal numbers."""
        made = self.torch.randn(*shape, device=self.device)
        return made.to(self.dtype if dtype is None else dtype)

    def image(self, *shape: int) -> Any:
        """Normal numbers, channels last in memory."""
        return self.normal(*shape).to(memory_format=self.torch.channels_last)

    def weight(self, outs: int, ins: int) -> Any:
        """Numbers that keep the size of what they multiply."""
        return self.normal(outs, ins) * ins**-0.5

    def below(self, high: int, *shape: int) -> Any:
        """Indices."""
        return self.torch.randint(0, high, shape, device=self.device)


@dataclass(frozen=True, slots=True)
class Work:
    """`ours` and `theirs` take `args`; `flops` are counted as the model's authors do.

    `nbytes` counts what must be read and written once; unless given, all of `args` and the result.
    Results may be off by `tolerance` of the largest value that torch finds in f64; random numbers
    (`is_random`) in their mean and deviation.
    """

    model: str
    family: str
    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: tuple[Any, ...]
    flops: int = 0
    nbytes: int | None = None
    tolerance: float = 2.0**-6
    is_random: bool = False

    @property
    def moved(self) -> int:
        """Bytes."""
        if self.nbytes is not None:
            return self.nbytes
        return sum(x.nbytes for x in self.args) + first(self.theirs(*self.args)).nbytes

    def error(self) -> float:
        """The largest difference from torch in f64, as a share of the largest value."""
        found = first(self.ours(*self.args)).double()
        if self.is_random:
            return float(found.mean().abs() + (found.std() - 1).abs())
        wide = first(self.theirs(*(x.double() if x.is_floating_point() else x for x in self.args)))
        wide = wide.double()
        finite = wide.isfinite()
        if found.shape != wide.shape or not bool((finite == found.isfinite()).all()):
            return float("inf")
        return float((found - wide)[finite].abs().max() / wide[finite].abs().max().clamp(min=1e-30))


def first(found: Any) -> Any:
    """The result, or the values of a result that has indices too."""
    return found[0] if isinstance(found, tuple) else found


def select(works: Iterable[Work], text: str) -> Iterator[Work]:
    """Those whose model, family or name has `text`."""
    return (w for w in works if text in f"{w.model}/{w.family}/{w.name}")
