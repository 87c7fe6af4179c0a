"""Layers of well-known networks, as works of `bench.cliffs`: `python -m bench.cliffs --networks`.

The shapes are those of the published models at a batch that one would serve: what a layer is
called says where it stands. Convolutions of images run with channels first and last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cubepy as cp
from bench.gpu_arrays import torch

kernels = cp.kernels
Pairs = Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]
"""Names, ours and torch's function."""


class Layer(NamedTuple):
    """A convolution: the extents of the array and the weights, and torch's parameters."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1


CONVOLUTIONS = (
    Layer("Stable Diffusion, 320 at 64", (2, 320, 64, 64), (320, 320, 3, 3), 1, 1),
    Layer("Stable Diffusion, 1280 at 16", (2, 1280, 16, 16), (1280, 1280, 3, 3), 1, 1),
    Layer("Stable Diffusion, 1280 at 8", (2, 1280, 8, 8), (1280, 1280, 3, 3), 1, 1),
    Layer("Stable Diffusion, latents", (2, 4, 64, 64), (320, 4, 3, 3), 1, 1),
    Layer("Stable Diffusion, to latents", (2, 320, 64, 64), (4, 320, 3, 3), 1, 1),
    Layer("VAE, 128 at 512", (1, 128, 512, 512), (128, 128, 3, 3), 1, 1),
    Layer("ViT, patches of 16", (8, 3, 224, 224), (768, 3, 16, 16), 16),
    Layer("CLIP, patches of 14", (8, 3, 224, 224), (1024, 3, 14, 14), 14),
    Layer("ConvNeXt, stem", (8, 3, 224, 224), (96, 3, 4, 4), 4),
    Layer("ConvNeXt, 7x7 of each", (8, 96, 56, 56), (96, 1, 7, 7), 1, 3, 1, 96),
    Layer("ConvNeXt, 2x2/2", (8, 96, 56, 56), (192, 96, 2, 2), 2),
    Layer("EfficientNet, 5x5/2 of each", (8, 144, 56, 56), (144, 1, 5, 5), 2, 2, 1, 144),
    Layer("EfficientNet, 3x3 of each", (8, 672, 14, 14), (672, 1, 3, 3), 1, 1, 1, 672),
    Layer("EfficientNet, squeezed", (8, 672, 1, 1), (28, 672, 1, 1)),
    Layer("MobileNet, 1x1 of 16", (8, 16, 112, 112), (96, 16, 1, 1)),
    Layer("MobileNet, 1x1 to 24", (8, 96, 56, 56), (24, 96, 1, 1)),
    Layer("ResNeXt, 32 groups", (8, 128, 56, 56), (128, 4, 3, 3), 1, 1, 1, 32),
    Layer("ShuffleNet, 1x1 in 3 groups", (8, 240, 28, 28), (240, 80, 1, 1), 1, 0, 1, 3),
    Layer("VGG, 64 at 224", (1, 64, 224, 224), (64, 64, 3, 3), 1, 1),
    Layer("VGG, first", (1, 3, 224, 224), (64, 3, 3, 3), 1, 1),
    Layer("AlexNet, 11x11/4", (8, 3, 224, 224), (64, 3, 11, 11), 4, 2),
    Layer("Inception, 1x7", (8, 128, 17, 17), (192, 128, 1, 7), 1, 0),
    Layer("DeepLab, dilated by 12", (1, 512, 33, 33), (256, 512, 3, 3), 1, 12, 12),
    Layer("YOLO, first", (1, 3, 640, 640), (32, 3, 3, 3), 1, 1),
    Layer("YOLO, 3x3/2", (1, 32, 640, 640), (64, 32, 3, 3), 2, 1),
    Layer("YOLO, heads", (1, 256, 80, 80), (255, 256, 1, 1)),
    Layer("DenseNet, growth", (8, 128, 28, 28), (32, 128, 3, 3), 1, 1),
    Layer("U-Net, last", (1, 64, 512, 512), (2, 64, 1, 1)),
    Layer("MNIST, first", (64, 1, 28, 28), (32, 1, 3, 3)),
    Layer("MNIST, second", (64, 32, 26, 26), (64, 32, 3, 3)),
    Layer("super-resolution, 9x9", (1, 1, 256, 256), (64, 1, 9, 9), 1, 4),
    Layer("Whisper, first", (4, 80, 3000), (512, 80, 3), 1, 1),
    Layer("Whisper, second", (4, 512, 3000), (512, 512, 3), 2, 1),
    Layer("wav2vec, first", (2, 1, 160000), (512, 1, 10), 5),
    Layer("wav2vec, second", (2, 512, 31999), (512, 512, 3), 2),
    Layer("wav2vec, positions", (2, 768, 499), (768, 48, 128), 1, 64, 1, 16),
    Layer("Mamba, 4 taps of each", (4, 2048, 1024), (2048, 1, 4), 1, 3, 1, 2048),
    Layer("WaveNet, dilated by 64", (4, 64, 16000), (128, 64, 2), 1, 0, 64),
    Layer("HiFi-GAN, 11 taps", (4, 128, 8192), (128, 128, 11), 1, 15, 3),
    Layer("conformer, 31 of each", (8, 512, 400), (512, 1, 31), 1, 15, 1, 512),
    Layer("C3D, first", (1, 3, 16, 112, 112), (64, 3, 3, 3, 3), 1, 1),
    Layer("C3D, second", (1, 64, 16, 56, 56), (128, 64, 3, 3, 3), 1, 1),
    Layer("3D U-Net", (1, 32, 64, 64, 64), (32, 32, 3, 3, 3), 1, 1),
)
TURNED = (
    Layer("U-Net, 2x2/2", (1, 128, 64, 64), (128, 64, 2, 2), 2),
    Layer("U-Net, 2x2/2 of 1024", (1, 1024, 28, 28), (1024, 512, 2, 2), 2),
    Layer("DCGAN, 4x4 of noise", (64, 100, 1, 1), (100, 512, 4, 4), 1),
    Layer("DCGAN, 4x4/2 of 512", (64, 512, 4, 4), (512, 256, 4, 4), 2, 1),
    Layer("DCGAN, last", (64, 64, 32, 32), (64, 3, 4, 4), 2, 1),
    Layer("HiFi-GAN, 16/8", (4, 512, 100), (512, 256, 16), 8, 4),
    Layer("FCN, 16x16/8", (1, 21, 64, 64), (21, 21, 16, 16), 8, 4),
)
PRODUCTS = (
    ("GPT-2, logits of one token", 1, 768, 50257),
    ("GPT-2, logits", 512, 768, 50257),
    ("Llama, logits of one token", 1, 4096, 32000),
    ("BERT, 384 tokens", 384, 768, 3072),
    ("ViT, 8 images of 197", 1576, 768, 2304),
    ("LoRA, down", 2048, 4096, 16),
    ("LoRA, up", 2048, 16, 4096),
    ("ResNet, classes", 32, 2048, 1000),
    ("DLRM, bottom", 2048, 13, 512),
    ("DLRM, top", 2048, 479, 1024),
    ("tables, 3 layers", 4096, 28, 64),
    ("MNIST, hidden", 64, 784, 128),
    ("MNIST, classes", 64, 128, 10),
    ("NeRF", 65536, 63, 256),
    ("NeRF, colours", 65536, 128, 3),
    ("PointNet", 32768, 3, 64),
    ("LSTM, one step", 32, 512, 2048),
    ("MLP-Mixer, tokens", 768, 196, 384),
)
"""Rows, and what `linear` takes and gives."""
ATTENTION = (
    ("BERT", 8, 12, 384, 384, 64, False),
    ("ViT", 8, 12, 197, 197, 64, False),
    ("CLIP's text", 16, 8, 77, 77, 64, True),
    ("Swin", 128, 6, 49, 49, 32, False),
    ("Whisper", 2, 8, 1500, 1500, 64, False),
    ("Stable Diffusion, itself", 2, 8, 4096, 4096, 40, False),
    ("Stable Diffusion, text", 2, 8, 4096, 77, 40, False),
    ("GPT-2", 2, 12, 1024, 1024, 64, True),
    ("one token", 1, 32, 1, 2048, 128, False),
)
"""Batch, heads, queries, keys, elements of a head, and whether it is causal."""
ROWS = (
    ("BERT", 3072, 768),
    ("Llama", 2048, 4096),
    ("ViT", 1576, 768),
    ("ConvNeXt", 25088, 96),
    ("one token", 1, 4096),
    ("logits", 512, 50257),
    ("classes", 256, 1000),
)
CHANNELS = (
    ("Stable Diffusion", (2, 320, 64, 64), 32),
    ("VAE", (1, 128, 512, 512), 32),
    ("ResNet", (8, 256, 14, 14), 32),
)
"""Images, and groups of channels."""
POOLS = (
    ("ResNet", (8, 64, 112, 112), 3, 2, 1),
    ("VGG", (8, 64, 224, 224), 2, 2, 0),
    ("SPP of YOLO", (1, 512, 20, 20), 5, 1, 2),
    ("MNIST", (64, 64, 24, 24), 2, 2, 0),
)
"""Images, and the window, stride and padding of a maximum."""


def works(random: Callable[..., Any]) -> Pairs:
    """All layers, whose tensors are made as they come; `random`: normal numbers of a shape."""
    yield from convolutions(random)
    yield from products(random)
    yield from attention(random)
    yield from rows(random)
    yield from channels(random)


def in_layouts(name: str, x: Any) -> Iterator[tuple[str, Any]]:
    """An array, and images with channels last too."""
    yield name, x
    if x.dim() == 4:
        yield f"{name} channels last", x.contiguous(memory_format=torch().channels_last)


def convolutions(random: Callable[..., Any]) -> Pairs:
    """Those of images, signals and volumes, and turned ones."""
    f = torch().nn.functional
    for layer in (*CONVOLUTIONS, *TURNED):
        axes, is_turned = len(layer.x) - 2, layer in TURNED
        function = f"conv_transpose{axes}d" if is_turned else f"conv{axes}d"
        options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding}
        options |= {"dilation": layer.dilation, "groups": layer.groups}
        w = random(*layer.w) / (layer.w[0 if is_turned else 1] * layer.w[-1]) ** 0.5
        bias = random(layer.w[1] if is_turned else layer.w[0])
        for name, x in in_layouts(layer.name, random(*layer.x)):
            ours, theirs = getattr(kernels, function), getattr(f, function)
            yield (
                f"{function}, {name}",
                lambda g=ours, x=x, w=w, b=bias, o=options: g(x, w, b, **o),
                lambda g=theirs, x=x, w=w, b=bias, o=options: g(x, w, b, **o),
            )


def products(random: Callable[..., Any]) -> Pairs:
    """Rows times weights [outputs, inputs], with a bias, and with weights that lie turned."""
    f, k = torch().nn.functional, kernels
    for name, m, inner, n in PRODUCTS:
        x, w, bias = random(m, inner), random(n, inner), random(n)
        for words, v in (("", w), (" turned", w.T.contiguous().T)):
            yield (
                f"linear{words}, {name}",
                lambda x=x, v=v, b=bias: k.matmul(x, v.T, bias=b),
                lambda x=x, v=v, b=bias: f.linear(x, v, b),
            )


def attention(random: Callable[..., Any]) -> Pairs:
    """Of all heads."""
    f, k = torch().nn.functional, kernels
    for name, batch, heads, queries, keys, size, causal in ATTENTION:
        q, v = random(batch, heads, queries, size), random(batch, heads, keys, size)
        w = random(batch, heads, keys, size)
        yield (
            f"attention, {name}",
            lambda q=q, v=v, w=w, c=causal: k.attention(q, v, w, causal=c),
            lambda q=q, v=v, w=w, c=causal: f.scaled_dot_product_attention(q, v, w, is_causal=c),
        )


def rows(random: Callable[..., Any]) -> Pairs:
    """What networks do along rows."""
    f, k, t = torch().nn.functional, kernels, torch()
    for name, count, size in ROWS:
        x, w, b = random(count, size), random(size), random(size)
        labels = t.randint(0, size, (count,), device=x.device)
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "softmax": (lambda x=x: k.softmax(x, -1), lambda x=x: t.softmax(x, -1)),
            "log_softmax": (lambda x=x: k.log_softmax(x, -1), lambda x=x: t.log_softmax(x, -1)),
            "layer_norm": (
                lambda x=x, w=w, b=b, n=size: k.layer_norm(x, n, w, b),
                lambda x=x, w=w, b=b, n=size: f.layer_norm(x, (n,), w, b),
            ),
            "rms_norm": (
                lambda x=x, w=w, n=size: k.rms_norm(x, n, w),
                lambda x=x, w=w, n=size: f.rms_norm(x, (n,), w),
            ),
            "argmax": (lambda x=x: k.argmax(x, -1), lambda x=x: x.argmax(-1)),
            "cross_entropy": (
                lambda x=x, y=labels: k.cross_entropy(x, y),
                lambda x=x, y=labels: f.cross_entropy(x, y),
            ),
        }
        for what, (ours, theirs) in pairs.items():
            yield f"{what}, {name}", ours, theirs


def channels(random: Callable[..., Any]) -> Pairs:
    """Norms of groups of channels, and maxima of windows."""
    f, k = torch().nn.functional, kernels
    for title, shape, groups in CHANNELS:
        w, b = random(shape[1]), random(shape[1])
        for name, x in in_layouts(title, random(*shape)):
            yield (
                f"group_norm, {name}",
                lambda x=x, w=w, b=b, g=groups: k.group_norm(x, g, w, b),
                lambda x=x, w=w, b=b, g=groups: f.group_norm(x, g, w, b),
            )
    for title, shape, size, stride, padding in POOLS:
        for name, x in in_layouts(title, random(*shape)):
            yield (
                f"max_pool2d, {name}",
                lambda x=x, o=(size, stride, padding): k.max_pool2d(x, *o),
                lambda x=x, o=(size, stride, padding): f.max_pool2d(x, *o),
            )
            yield (
                f"mean of images, {name}",
                lambda x=x: k.mean(x, (2, 3)),
                lambda x=x: x.mean((2, 3)),
            )
