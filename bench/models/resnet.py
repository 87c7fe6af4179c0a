"""ResNet-50: its convolutions, their gradients, pools, norms and the last layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import cubepy as cp
from bench.models.work import Arrays, Work

MODEL = "ResNet-50"
LAYERS = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 3, 1),
    (128, 128, 28, 3, 1),
    (256, 256, 14, 3, 1),
    (512, 512, 7, 3, 1),
    (128, 128, 56, 3, 2),
    (64, 256, 56, 1, 1),
    (1024, 256, 14, 1, 1),
    (512, 2048, 7, 1, 1),
)
"""Channels, filters, side of the image, side of the window, stride."""
kernels: Any = cp.kernels


def works(arrays: Arrays) -> Iterator[Work]:
    """Each makes its arrays when it is reached."""
    for layer in LAYERS:
        yield convolution(arrays, *layer)
    yield from gradients(arrays, *LAYERS[2])
    yield from pools(arrays)
    yield from between(arrays)
    yield from head(arrays)


def convolution(
    arrays: Arrays, channels: int, filters: int, side: int, window: int, stride: int
) -> Work:
    """Forward, without a bias, as batch norms follow."""
    n, of = arrays.sizes.images, arrays.sizes.of
    x = arrays.image(n, of(channels), of(side), of(side))
    w = arrays.image(of(filters), of(channels), window, window)
    options = {"stride": stride, "padding": window // 2}
    theirs = partial(arrays.torch.nn.functional.conv2d, **options)
    pixels = n * (-(-of(side) // stride)) ** 2
    name = f"{n}x{channels}x{side}x{side}, {window}x{window}/{stride} to {filters}"
    flops = 2 * pixels * of(filters) * of(channels) * window**2
    return Work(
        MODEL, "convolution", name, partial(kernels.conv2d, **options), theirs, (x, w), flops
    )


def gradients(
    arrays: Arrays, channels: int, filters: int, side: int, window: int, stride: int
) -> Iterator[Work]:
    """By the input and by the weights."""
    n, of = arrays.sizes.images, arrays.sizes.of
    x = arrays.image(n, of(channels), of(side), of(side))
    w = arrays.image(of(filters), of(channels), window, window)
    grad = arrays.image(n, of(filters), of(side), of(side))
    sizes = [stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], 1

    def theirs(which: int, grad: Any, x: Any, w: Any) -> Any:
        wanted = [which == 0, which == 1, False]
        backward = arrays.torch.ops.aten.convolution_backward
        return backward(grad, x, w, None, *sizes, wanted)[which]

    def by_input(grad: Any, x: Any, w: Any) -> Any:
        return kernels.conv2d_input_grad(x.shape, w, grad, stride, window // 2)

    def by_weights(grad: Any, x: Any, w: Any) -> Any:
        return kernels.conv2d_weight_grad(x, w.shape, grad, stride, window // 2)

    flops = 2 * grad.numel() * of(channels) * window**2
    moved = grad.nbytes + x.nbytes + w.nbytes
    for which, (what, ours) in enumerate((("input", by_input), ("weights", by_weights))):
        name = f"gradient by the {what}, {n}x{channels}x{side}x{side}, {window}x{window}"
        call = partial(theirs, which)
        yield Work(MODEL, "convolution", name, ours, call, (grad, x, w), flops, moved)


def pools(arrays: Arrays) -> Iterator[Work]:
    """Behind the stem, and before the last layer."""
    n, of = arrays.sizes.images, arrays.sizes.of
    functional = arrays.torch.nn.functional
    window = {"kernel_size": 3, "stride": 2, "padding": 1}
    yield Work(
        MODEL,
        "pooling",
        f"max, {n}x64x112x112, 3x3/2",
        partial(kernels.max_pool2d, **window),
        partial(functional.max_pool2d, **window),
        (arrays.image(n, of(64), of(112), of(112)),),
    )
    yield Work(
        MODEL,
        "pooling",
        f"mean of images, {n}x2048x7x7",
        partial(kernels.adaptive_avg_pool2d, output_size=1),
        partial(functional.adaptive_avg_pool2d, output_size=1),
        (arrays.image(n, of(2048), 7, 7),),
    )


def add_relu(a: Any, b: Any) -> Any:
    return max(a + b, 0)


def between(arrays: Arrays) -> Iterator[Work]:
    """What stands between convolutions."""
    n, of = arrays.sizes.images, arrays.sizes.of
    x = arrays.image(n, of(256), of(56), of(56))
    w, b = arrays.normal(of(256)), arrays.normal(of(256))

    def norm(x: Any, w: Any, b: Any) -> Any:
        return arrays.torch.nn.functional.batch_norm(x, None, None, w, b, True)

    def ours(x: Any, w: Any, b: Any) -> Any:
        return kernels.batch_norm(x, None, None, w, b, True)

    yield Work(MODEL, "normalisation", f"batch norm, {n}x256x56x56", ours, norm, (x, w, b))
    y = arrays.image(*x.shape)
    relu = arrays.torch.relu
    yield Work(
        MODEL,
        "element by element",
        f"relu(x + y), {n}x256x56x56",
        partial(kernels.map, add_relu),
        lambda x, y: relu(x + y),
        (x, y),
    )


def head(arrays: Arrays) -> Iterator[Work]:
    """1,000 classes."""
    n, of = arrays.sizes.images, arrays.sizes.of
    x, w, b = arrays.normal(n, of(2048)), arrays.weight(of(1000), of(2048)), arrays.normal(of(1000))
    yield Work(
        MODEL,
        "product",
        f"{n}x1000x2048, bias",
        lambda x, w, b: kernels.matmul(x, w.T, bias=b),
        arrays.torch.nn.functional.linear,
        (x, w, b),
        2 * n * of(1000) * of(2048),
    )
