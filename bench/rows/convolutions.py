"""Convolutions of ResNet-50 against torch: channels first, channels last, weights packed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_random, to_f64
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "conv2d"
FORMS = ("direct", "winograd4x4")
"""What `prepack` may be asked for in place of what it chooses (docs/accuracy.md)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Square images of `extent`, square windows."""

    channels: int
    filters: int
    extent: int
    window: int
    stride: int
    floor: float
    batch: int = 1

    def __str__(self) -> str:
        window = f"{self.window}x{self.window}/{self.stride}"
        return f"{self.batch} of {self.channels}@{self.extent} {window} to {self.filters}"

    @property
    def padding(self) -> int:
        """Such that windows of stride 1 keep the extent."""
        return self.window // 2


LAYERS = (
    Problem(64, 64, 56, 3, 1, 1.15),
    Problem(128, 128, 28, 3, 1, 1.15),
    Problem(256, 256, 14, 3, 1, 1.15),
    Problem(512, 512, 7, 3, 1, 1.15),
    Problem(3, 64, 224, 7, 2, 0.85),
    Problem(64, 256, 56, 1, 1, 0.85),
    Problem(256, 64, 56, 1, 1, 0.85),
    Problem(1024, 256, 14, 1, 1, 0.85),
    Problem(512, 2048, 7, 1, 1, 0.85),
)


def rows() -> Iterator[Row]:
    """One row for each layer, for one image and for 16."""
    for batch in (1, 16):
        for layer in LAYERS:
            problem = replace(layer, batch=batch)
            yield Row(GROUP, str(problem), partial(_make, problem))


def _make(problem: Problem, small: bool) -> Case:
    p = replace(problem, channels=3, filters=5, extent=9, batch=2) if small else problem
    x = make_random((p.batch, p.channels, p.extent, p.extent))
    w = make_random((p.filters, p.channels, p.window, p.window), seed=1)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    contenders = [*_ours(p, x, last, w), *_torch(p, x, last, w)]
    against = ("torch returned", "torch last", "torch packed")
    claims = [Claim("best", "cubepy packed", against, problem.floor)]
    claims.append(Claim("channels last", "cubepy packed last", against, problem.floor))
    claims += [Claim(form, f"cubepy {form}", against, problem.floor) for form in FORMS]
    taps = p.channels * p.window**2
    return Case(contenders, claims, partial(_expected, p, x, w), rtol=1e-4, atol=taps * 1e-5)


def _ours(p: Problem, x: np.ndarray, last: np.ndarray, w: np.ndarray) -> Iterator[Contender]:
    conv2d, prepack = peers.find_prebuilt("conv2d"), peers.find_prebuilt("prepack")
    if conv2d is None or prepack is None:
        return
    options = {"stride": p.stride, "padding": p.padding}
    yield Contender(OURS, partial(conv2d, x, w, **options), "returned")
    yield Contender(OURS, partial(conv2d, x, prepack(w), **options), "packed")
    yield Contender(OURS, partial(conv2d, last, prepack(w), **options), "packed last")
    if (p.window, p.stride) == (3, 1):
        for form in FORMS:
            packed = prepack(w, precision=form)
            yield Contender(OURS, partial(conv2d, last, packed, **options), form)


def _torch(p: Problem, x: np.ndarray, last: np.ndarray, w: np.ndarray) -> Iterator[Contender]:
    torch = peers.find("torch")
    if torch is None:
        return
    conv2d: Any = torch.nn.functional.conv2d
    options = {"stride": p.stride, "padding": p.padding}
    one, two, weight = map(peers.as_torch, (x, last, w))
    yield Contender("torch", partial(conv2d, one, weight, **options), "returned")
    of_last = weight.contiguous(memory_format=torch.channels_last)
    yield Contender("torch", partial(conv2d, two, of_last, **options), "last")
    if torch.backends.mkldnn.is_available():
        yield Contender("torch", _packed(torch, p, two, weight), "packed")


def _packed(torch: Any, p: Problem, x: Any, weight: Any) -> Any:
    """What torch's compiler makes of a constant weight."""
    sizes = ([p.padding] * 2, [p.stride] * 2, [1, 1], 1)
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), *sizes, list(x.shape))
    call = torch.ops.mkldnn._convolution_pointwise
    return partial(call, x, packed, None, *sizes, "none", [], "")


def _expected(p: Problem, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    n = p.padding
    padded = np.pad(to_f64(x), ((0, 0), (0, 0), (n, n), (n, n)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    cut = windows[:, :, :: p.stride, :: p.stride]
    return np.moveaxis(np.tensordot(cut, to_f64(w), ((1, 4, 5), (1, 2, 3))), -1, 1)
