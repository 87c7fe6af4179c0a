"""What `bench.gpu` measures: prebuilt functions on torch's CUDA tensors, with their peers.

Each work makes its own data, and says what bytes must move, each counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cp
from bench.gpu_arrays import compiled, random, torch, worst

kernels = cp.kernels
MIB = 1 << 20
GIB = 1 << 30
SIDE = 16384


@dataclass
class Work:
    """One line of the table.

    `floor`: a peer, or "copy", the copy of `copies` bytes, and how much of its speed is asked for.
    `wide`: the result in f64, of the part of ours that `seen` gives; None where ours must be equal
    to that of the first peer.
    """

    name: str
    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    nbytes: int
    floor: tuple[str, float]
    wide: Callable[[], Any] | None = None
    seen: Callable[[Any], Any] = lambda found: found

    def error(self) -> float:
        """The largest difference over the largest value; 0 or infinite where they must be equal."""
        found = self.ours()
        if self.wide is not None:
            return worst(self.seen(found), self.wide())
        expected = next(iter(self.peers.values()))()
        same = torch().equal(self.seen(found), self.seen(expected))
        return 0.0 if same else float("inf")


COMPILED = "torch.compile"


def functional() -> Any:
    return torch().nn.functional


def same(v: Any) -> Any:
    return v


def gelu(v: Any) -> Any:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


def gated_gelu(v: Any) -> Any:
    """gelu(v * 1.5 + 0.5) * sigmoid(v)"""
    return gelu(v * 1.5 + 0.5) * cp.sigmoid(v)


# Element by element


def copies() -> Iterator[Work]:
    x = random(GIB // 4)
    out = torch().empty_like(x)
    yield Work(
        "copy, f32, 1 GiB",
        lambda: kernels.map(same, x, out=out),
        {"torch": lambda: out.copy_(x), COMPILED: compiled(lambda v: v.clone(), x)},
        2 * x.nbytes,
        (COMPILED, 0.98),
    )
    y = random(SIDE, SIDE)
    turned = torch().empty_like(y)
    yield Work(
        f"transpose, f32, {SIDE}^2",
        lambda: kernels.transpose(y, out=turned),
        {"torch": lambda: turned.copy_(y.T)},
        2 * y.nbytes,
        ("torch", 1.0),
    )


def maps() -> Iterator[Work]:
    x = random(1 << 28)
    out = torch().empty_like(x)

    def eager(v: Any) -> Any:
        return functional().gelu(v * 1.5 + 0.5) * torch().sigmoid(v)

    yield Work(
        "gelu(x*1.5+0.5)*sigmoid(x), f32, 256 Mi",
        lambda: kernels.map(gated_gelu, x, out=out),
        {COMPILED: compiled(eager, x)},
        2 * x.nbytes,
        (COMPILED, 1.03),
        lambda: eager(x[: 1 << 22].double()),
        lambda found: found[: 1 << 22],
    )


# Reductions


def sums() -> Iterator[Work]:
    for size in (1, 16, 256):
        yield from sum_of_all(random(size * MIB // 4), f"{size} MiB")
    x = random(SIDE, SIDE)
    yield from sum_of_all(x, f"{SIDE}^2")
    for axis, what in ((1, "rows"), (0, "columns")):
        yield Work(
            f"sum of {what}, f32, {SIDE}^2",
            lambda axis=axis: kernels.sum(x, axis),
            {"torch": lambda axis=axis: x.sum(axis)},
            x.nbytes,
            ("torch", 1.0),
            lambda axis=axis: x.double().sum(axis),
        )


def sum_of_all(x: Any, size: str) -> Iterator[Work]:
    yield Work(
        f"sum of all, f32, {size}",
        lambda: kernels.sum(x),
        {"torch": lambda: x.sum()},
        x.nbytes,
        ("torch", 1.0),
        lambda: x.double().sum(),
    )


def reductions() -> Iterator[Work]:
    x, t = random(SIDE, SIDE), torch()
    yield argmax(x, f"{SIDE}^2", 1.15)
    yield argmax(random(SIDE, 1003), f"{SIDE}x1003", 1.0)
    yield Work(
        f"max of rows, f32, {SIDE}^2",
        lambda: kernels.max(x, 1),
        {"torch": lambda: t.amax(x, 1)},
        x.nbytes,
        ("torch", 1.0),
    )
    yield Work(
        f"mean of columns, f32, {SIDE}^2",
        lambda: kernels.mean(x, 0),
        {"torch": lambda: x.mean(0)},
        x.nbytes,
        ("torch", 1.0),
        lambda: x.double().mean(0),
    )
    for axis, what in ((1, "rows"), (0, "columns"), (None, "all")):
        yield Work(
            f"variance of {what}, f32, {SIDE}^2",
            lambda axis=axis: kernels.var(x, axis),
            {"torch": lambda axis=axis: t.var(x, axis, correction=0)},
            x.nbytes,
            ("torch", 1.0),
            lambda axis=axis: t.var(x.double(), axis, correction=0),
        )


def argmax(x: Any, size: str, least: float) -> Work:
    t = torch()
    return Work(
        f"argmax of rows, f32, {size}",
        lambda: kernels.argmax(x, 1),
        {"torch": lambda: t.argmax(x, 1), COMPILED: compiled(lambda v: t.argmax(v, 1), x)},
        x.nbytes,
        (COMPILED, least),
    )


# Normalisation


def softmaxes() -> Iterator[Work]:
    half = torch().bfloat16
    for rows, n, dtype in (
        (SIDE, SIDE, None),
        (65536, 512, half),
        (256, 1024, None),
        (4096, 1024, None),
        (8192, 8192, None),
        (2048, 131072, None),
        (SIDE, 1003, half),  # rows that begin anywhere
        (8192, 4097, None),
        (8192, 4097, half),
        (4096, 16383, half),
    ):
        yield softmax(kernels.softmax, torch().softmax, rows, n, dtype)
    yield softmax(kernels.log_softmax, torch().log_softmax, SIDE, SIDE, None)


def size_of(x: Any) -> str:
    what = "bf16" if x.dtype == torch().bfloat16 else "f32"
    return f"{what}, {x.shape[0]}x{x.shape[1]}"


def softmax(ours: Any, theirs: Any, rows: int, n: int, dtype: Any) -> Work:
    x = random(rows, n, dtype=dtype)
    return Work(
        f"{ours.__name__} of rows, {size_of(x)}",
        lambda: ours(x),
        {COMPILED: compiled(lambda v: theirs(v, 1), x)},
        2 * x.nbytes,
        (COMPILED, 1.0),
        lambda: theirs(x[:256].double(), 1),
        lambda found: found[:256],
    )


def norms() -> Iterator[Work]:
    half = torch().bfloat16
    for rows, n, dtype in ((SIDE, SIDE, None), (SIDE, 4096, half), (8192, 4097, half)):
        x = random(rows, n, dtype=dtype)
        w, b = random(n, dtype=dtype), random(n, dtype=dtype)

        def layer(v: Any, w: Any = w, b: Any = b, n: int = n) -> Any:
            return functional().layer_norm(v, (n,), w.to(v.dtype), b.to(v.dtype))

        yield Work(
            f"layer_norm, {size_of(x)}",
            lambda x=x, w=w, b=b, n=n: kernels.layer_norm(x, n, w, b),
            {COMPILED: compiled(layer, x)},
            2 * x.nbytes,
            (COMPILED, 1.0),
            lambda x=x, layer=layer: layer(x[:256].double()),
            lambda found: found[:256],
        )

        def root(v: Any, w: Any = w, n: int = n) -> Any:
            return functional().rms_norm(v, (n,), w.to(v.dtype), 1e-5)

        yield Work(
            f"rms_norm, {size_of(x)}",
            lambda x=x, w=w, n=n: kernels.rms_norm(x, n, w, 1e-5),
            {COMPILED: compiled(root, x)},
            2 * x.nbytes,
            (COMPILED, 1.0),
            lambda x=x, root=root: root(x[:256].double()),
            lambda found: found[:256],
        )


def losses() -> Iterator[Work]:
    for rows, n, dtype in ((SIDE, SIDE, None), (8192, 32000, torch().bfloat16)):
        x = random(rows, n, dtype=dtype)
        y = torch().randint(0, n, (rows,), device="cuda")

        def loss(v: Any, y: Any = y) -> Any:
            return functional().cross_entropy(v, y)

        yield Work(
            f"cross_entropy, {size_of(x)}",
            lambda x=x, y=y: kernels.cross_entropy(x, y),
            {COMPILED: compiled(loss, x)},
            x.nbytes,
            (COMPILED, 1.0),
            lambda x=x, loss=loss: loss(x.double()),
        )


def channel_norms() -> Iterator[Work]:
    x = random(32, 256, 56, 56)
    w, b = random(256), random(256)

    def batch(v: Any) -> Any:
        given = w.to(v.dtype), b.to(v.dtype)
        return functional().batch_norm(v, None, None, *given, training=True)

    def group(v: Any) -> Any:
        return functional().group_norm(v, 32, w.to(v.dtype), b.to(v.dtype))

    yield Work(
        "batch_norm, f32, 32x256x56x56",
        lambda: kernels.batch_norm(x, None, None, w, b, True),
        {"torch": lambda: batch(x), COMPILED: compiled(batch, x)},
        2 * x.nbytes,
        (COMPILED, 1.0),
        lambda: batch(x.double()),
    )
    yield Work(
        "group_norm, f32, 32x256x56x56",
        lambda: kernels.group_norm(x, 32, w, b),
        {"torch": lambda: group(x), COMPILED: compiled(group, x)},
        2 * x.nbytes,
        (COMPILED, 1.0),
        lambda: group(x.double()),
    )


# Selection


def selections() -> Iterator[Work]:
    x = random(4096, 32768)
    for k in (8, 64):
        yield Work(
            f"topk, k={k}, f32, 4096x32768",
            lambda k=k: kernels.topk(x, k),
            {"torch": lambda k=k: torch().topk(x, k)},
            x.nbytes,
            ("torch", 1.0),
            None,
            lambda found: found[0],
        )


# Pooling

WINDOWS = (((3, 1, 1), 1.4), ((3, 2, 1), 1.1), ((2, 2, 0), 1.0))


def pools() -> Iterator[Work]:
    x = random(2, 128, 512, 512)
    for window, least in WINDOWS:
        yield from pool(kernels.max_pool2d, functional().max_pool2d, x, window, least)
    yield from pool(kernels.avg_pool2d, functional().avg_pool2d, x, (3, 1, 1), 1.0)
    yield from pool(kernels.avg_pool2d, functional().avg_pool2d, x, (2, 2, 0), 1.0)


def pool(
    ours: Any, theirs: Any, x: Any, window: tuple[int, int, int], least: float
) -> Iterator[Work]:
    size, stride, pad = window
    out = theirs(x, *window)
    yield Work(
        f"{theirs.__name__} (2,128,512,512) {size}/{stride}/{pad}",
        lambda: ours(x, *window),
        {COMPILED: compiled(lambda v: theirs(v, *window), x)},
        x.nbytes + out.nbytes,
        (COMPILED, least),
        lambda: theirs(x[:1, :16].double(), *window),
        lambda found: found[:1, :16],
    )


SUITE: dict[str, Callable[[], Iterator[Work]]] = {
    "copy": copies,
    "map": maps,
    "sum": sums,
    "softmax": softmaxes,
    "norm": norms,
    "loss": losses,
    "reduction": reductions,
    "pool": pools,
    "topk": selections,
    "channels": channel_norms,
}
