"""Convolutions beside cuDNN: `python -m bench.gpu_convolution [--json FILE] [--only NAME]`.

Both work on torch's bf16 tensors with the channels last; cuDNN is torch's, with `benchmark` on.
Times are medians of replays of CUDA graphs, in turns, on random data.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.replays import medians

KINDS = ("forward", "input gradient", "weight gradient")
FLOORS = {"forward 32x64x56x56 3x3 64": 1.1, "forward 32x256x14x14 3x3 256": 1.1}
"""What the time of cuDNN over ours must reach."""


@dataclass(frozen=True)
class Layer:
    """A convolution of `batch` square images."""

    batch: int
    channels: int
    side: int
    filters: int
    window: int
    stride: int = 1

    @property
    def padding(self) -> int:
        """As much as keeps the extents of the image."""
        return self.window // 2

    def __str__(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        image = f"{self.batch}x{self.channels}x{self.side}x{self.side}"
        return f"{image} {self.window}x{self.window}{stride} {self.filters}"


LAYERS = (
    Layer(32, 64, 56, 64, 3),
    Layer(32, 128, 28, 128, 3),
    Layer(32, 256, 14, 256, 3),
    Layer(32, 512, 7, 512, 3),
    Layer(32, 128, 56, 128, 3, 2),
    Layer(32, 256, 56, 64, 1),
    Layer(32, 64, 56, 256, 1),
    Layer(32, 1024, 14, 256, 1),
    Layer(1, 64, 56, 64, 3),
    Layer(1, 256, 14, 256, 3),
)


@dataclass
class Row:
    """One line of the table: microseconds, TFLOP/s, and the time of cuDNN over ours."""

    work: str
    us: float
    tflops: float
    cudnn_us: float
    ratio: float
    floor: float
    error: float


def measured(layer: Layer, kind: str) -> Row:
    """One layer: `kind` is forward, input gradient or weight gradient."""
    import torch

    def random(*shape: int) -> Any:
        made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        return made.to(memory_format=torch.channels_last)

    x = random(layer.batch, layer.channels, layer.side, layer.side)
    w = random(layer.filters, layer.channels, layer.window, layer.window)
    common = [layer.stride] * 2, [layer.padding] * 2, [1, 1], False, [0, 0], 1
    grad = random(*torch.ops.aten.convolution(x, w, None, *common).shape)
    flops = 2 * grad.numel() * layer.channels * layer.window**2

    def peer(x: Any = x, w: Any = w, grad: Any = grad) -> Any:
        if kind == "forward":
            return torch.ops.aten.convolution(x, w, None, *common)
        wanted = [kind == "input gradient", kind == "weight gradient", False]
        found = torch.ops.aten.convolution_backward(grad, x, w, None, *common, wanted)
        return found[wanted.index(True)]

    def ours() -> Any:
        options: Any = {"stride": layer.stride, "padding": layer.padding}
        if kind == "forward":
            return cp.kernels.conv2d(x, w, **options)
        if kind == "input gradient":
            return cp.kernels.conv2d_input_grad(x.shape, w, grad, **options)
        return cp.kernels.conv2d_weight_grad(x, w.shape, grad, **options)

    exact = peer(x.double(), w.double(), grad.double())
    error = float((ours().double() - exact).abs().max() / exact.abs().max())
    times = medians({"ours": ours, "cudnn": peer})
    us, cudnn = 1e3 * times["ours"], 1e3 * times["cudnn"]
    work = f"{kind} {layer}"
    return Row(work, us, flops / us / 1e6, cudnn, cudnn / us, FLOORS.get(work, 0.0), error)


def main() -> None:
    """Print the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CubePy {cp.__version__}")
    rows = []
    for kind in KINDS:
        for layer in LAYERS:
            if options.only not in f"{kind} {layer}":
                continue
            row = measured(layer, kind)
            rows.append(row)
            verdict = "" if not row.floor else "pass" if row.ratio >= row.floor else "MISS"
            print(
                f"{row.work:44} {row.us:8.2f} us {row.tflops:7.1f} TFLOP/s"
                f"  cuDNN {row.cudnn_us:8.2f} us  ratio {row.ratio:.3f}"
                f"  error {row.error:.1e} {verdict}",
                flush=True,
            )
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
