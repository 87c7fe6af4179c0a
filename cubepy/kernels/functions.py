"""The package `cubepy.kernels` itself: its functions are loaded on first use.

Loading all families takes several times as long as loading one. A function hides a subpackage of
its name, such as `matmul`, which Python would put in its place when it loads the subpackage.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from cubepy.collection import paused_collection

HOMES: dict[str, tuple[str, ...]] = {
    "attention.entry": ("attention",),
    "attention.gradients": ("attention_grad",),
    "attention.sequences": ("attention_paged", "attention_ragged"),
    "convolution.entry": ("conv1d", "conv2d", "conv3d"),
    "convolution.gradients": ("conv1d_weight_grad", "conv2d_weight_grad", "conv3d_weight_grad"),
    "convolution.transposed": (
        "conv1d_input_grad",
        "conv2d_input_grad",
        "conv3d_input_grad",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ),
    "convolution.weights": ("prepack",),
    "elementwise.entry": ("map",),
    "elementwise.selection": ("where",),
    "indexing.entry": ("gather", "scatter"),
    "matmul.entry": ("matmul",),
    "matmul.experts": ("grouped_matmul",),
    "normalisation.channels": ("batch_norm", "group_norm", "instance_norm"),
    "normalisation.entry": ("layer_norm", "log_softmax", "rms_norm", "softmax"),
    "normalisation.losses": ("cross_entropy",),
    "pooling.entry": (
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
    ),
    "position.entry": ("argmax", "argmin"),
    "quantisation.entry": ("dequantize", "quantize"),
    "quantisation.operand": ("Quantised",),
    "reduction.entry": (
        *("all", "any", "logsumexp", "max", "mean", "min"),
        *("norm", "prod", "std", "sum", "var"),
    ),
    "scan.entry": ("cumprod", "cumsum"),
    "sorting.entry": ("sort", "topk"),
    "transposition.entry": ("transpose",),
}
"""The public names of each module of this package."""
_HOME = {name: home for home, names in HOMES.items() for name in names}


class _Kernels(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "random":
            return import_module("cubepy.kernels.random")
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with paused_collection():
            found = getattr(import_module(f"{self.__name__}.{_HOME[name]}"), name)
        setattr(self, name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *_HOME, "random"})


sys.modules["cubepy.kernels"].__class__ = _Kernels
