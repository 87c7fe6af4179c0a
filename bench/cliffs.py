"""Prebuilt functions beside eager torch over shapes that networks and tables have, and odd ones:
`python -m bench.cliffs [--device cuda] [--dtype bfloat16] [--only REGEX] [--least RATIO]`; with
`--networks` over the layers of well-known networks instead.

Other benchmarks measure shapes with floors; this one looks for those that nobody thought of: rows
of ten columns, three long columns, images of three channels, one filter for each channel, heads of
40 elements. It prints each work's milliseconds, and at the end those where ours is slower than
`--least` of torch; `--json FILE` keeps them. On a CPU both have all cores, take turns, and make
their results; on a GPU times are those of replays of graphs, and cuDNN has no tf32, as ours has
none. Results are compared too: a work is marked whose largest difference is more than 3 % of the
largest value.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import cubepy as cp
from bench import networks
from bench.gpu_arrays import torch
from cubepy.errors import Error

kernels = cp.kernels
MATRICES = (
    (65536, 10),
    (16384, 77),
    (4096, 1003),
    (1000, 4099),
    (64, 262144),
    (3, 1000003),
    (1000003, 3),
    (16384, 64),
)
PRODUCTS = ((2, 4096, 256), (8, 512, 32), (16, 4096, 16), (24, 512, 48), (128, 4096, 16))
"""Rows, elements of k, and columns, where two of them are few."""
IMAGES = ((8, 64, 56, 56), (2, 3, 224, 224), (32, 256, 7, 7), (4, 16, 300, 301), (1, 512, 14, 14))
HEADS = (
    (8, 12, 128, 128, 64),
    (2, 16, 1024, 1024, 40),
    (2, 16, 1024, 1024, 72),
    (1, 8, 1000, 77, 80),
    (4, 8, 513, 513, 128),
    (1, 16, 1024, 1024, 256),
    (16, 32, 1, 1000, 128),
)
"""Batch, heads, queries, keys, and elements of a head."""
TOLERANCE, SECONDS, LEAST_TURNS, CALLS = 3e-2, 0.25, 4, 3
PAUSE = 0.01
"""Seconds in which the other's workers, which wait for more work in a loop, fall asleep: until then
they take a core from calls of all of them."""
MOST_COLUMNS = 1 << 16
"""Columns of a matrix that is a factor, at most."""

Call = Callable[[], Any]
Random = Callable[..., Any]
"""Normal numbers in a tensor of a shape, on the device and of the dtype of the day."""


@dataclass
class Work:
    """Ours and torch's function of the same tensors."""

    name: str
    ours: Call
    theirs: Call


@dataclass
class Row:
    """Milliseconds, and torch's over ours."""

    name: str
    ours: float
    torch: float
    ratio: float
    is_close: bool


def works(random: Random) -> Iterator[Work]:
    """All works, whose tensors are made as they come."""
    for shape in MATRICES:
        yield from of_axes(random, shape)
        yield from of_rows(random, shape)
        yield from products(random, shape)
    for extents in PRODUCTS:
        yield from few_results(random, extents)
    for shape in HEADS:
        yield from attention(random, shape)
    yield from signals(random)
    for shape in IMAGES:
        x = random(*shape)
        name = "x".join(map(str, shape))
        yield from of_images(name, x, random)
        last = x.contiguous(memory_format=torch().channels_last)
        yield from of_images(f"{name} channels last", last, random)


def of_axes(random: Random, shape: tuple[int, int]) -> Iterator[Work]:
    """Functions along one axis of a matrix."""
    t, k = torch(), kernels
    x = random(*shape)
    for axis in (0, 1):
        pairs: dict[str, tuple[Call, Call]] = {
            "sum": (lambda a=axis: k.sum(x, a), lambda a=axis: x.sum(a)),
            "max": (lambda a=axis: k.max(x, a), lambda a=axis: x.amax(a)),
            "argmax": (lambda a=axis: k.argmax(x, a), lambda a=axis: x.argmax(a)),
            "var": (lambda a=axis: k.var(x, a), lambda a=axis: t.var(x, a, correction=0)),
            "logsumexp": (lambda a=axis: k.logsumexp(x, a), lambda a=axis: t.logsumexp(x, a)),
            "norm": (lambda a=axis: k.norm(x, a), lambda a=axis: t.linalg.vector_norm(x, dim=a)),
            "cumsum": (lambda a=axis: k.cumsum(x, a), lambda a=axis: t.cumsum(x, a)),
            "softmax": (lambda a=axis: k.softmax(x, a), lambda a=axis: t.softmax(x, a)),
            "sort": (lambda a=axis: k.sort(x, a)[0], lambda a=axis: t.sort(x, a)[0]),
        }
        if shape[axis] >= 5:
            pairs["topk 5"] = (
                lambda a=axis: k.topk(x, 5, a)[0],
                lambda a=axis: t.topk(x, 5, a)[0],
            )
        for name, (ours, theirs) in pairs.items():
            yield Work(f"{name} of axis {axis}, {shape[0]}x{shape[1]}", ours, theirs)


def of_rows(random: Random, shape: tuple[int, int]) -> Iterator[Work]:
    """Functions of the rows of a matrix, and of all its elements."""
    t, k, f = torch(), kernels, torch().nn.functional
    (rows, n), x = shape, random(*shape)
    w, places = random(n), t.randint(0, rows, (rows,), device=x.device)
    labels = t.randint(0, n, (rows,), device=x.device)
    pairs: dict[str, tuple[Call, Call]] = {
        "argmax of all": (lambda: k.argmax(x), lambda: x.argmax()),
        "layer_norm": (lambda: k.layer_norm(x, n, w, w), lambda: f.layer_norm(x, (n,), w, w)),
        "rms_norm": (lambda: k.rms_norm(x, n, w), lambda: f.rms_norm(x, (n,), w)),
        "cross_entropy": (
            lambda: k.cross_entropy(x, labels),
            lambda: f.cross_entropy(x, labels),
        ),
        "transpose": (lambda: k.transpose(x), lambda: x.T.contiguous()),
        "where": (lambda: k.where(x > 0, x, 0.0), lambda: t.where(x > 0, x, 0.0)),
        "gather of rows": (lambda: k.gather(x, places, mode="slices"), lambda: x[places]),
    }
    for name, (ours, theirs) in pairs.items():
        yield Work(f"{name}, {rows}x{n}", ours, theirs)


def products(random: Random, shape: tuple[int, int]) -> Iterator[Work]:
    """Products of a matrix and few columns, and of its transpose."""
    k, (rows, n), x = kernels, shape, random(*shape)
    if n > MOST_COLUMNS:
        return
    few, tall, w = random(n, 32), random(rows, 32), random(n)
    size = f"{rows}x{n}"
    yield Work(f"matmul, {size} by 32", lambda: k.matmul(x, few), lambda: x @ few)
    yield Work(f"matmul, {size} turned by 32", lambda: k.matmul(x.T, tall), lambda: x.T @ tall)
    yield Work(f"matmul, {size} by a vector", lambda: k.matmul(x, w), lambda: x @ w)


def few_results(random: Random, extents: tuple[int, int, int]) -> Iterator[Work]:
    """Products of few rows and columns, of factors that lie along rows or columns each."""
    m, n, k = extents[0], extents[2], kernels
    a, b = random(m, extents[1]), random(extents[1], n)
    turned_a, turned_b = a.T.contiguous().T, b.T.contiguous().T
    layouts = {"": (a, b), " left": (turned_a, b), " right": (a, turned_b)}
    for turned, (x, y) in (layouts | {" both": (turned_a, turned_b)}).items():
        name = f"matmul, {m}x{extents[1]}x{n}{turned and f', turned{turned}'}"
        yield Work(name, lambda x=x, y=y: k.matmul(x, y), lambda x=x, y=y: x @ y)


def attention(random: Random, shape: tuple[int, ...]) -> Iterator[Work]:
    """All queries and all keys, and the keys before each query."""
    n, heads, queries, keys, d = shape
    q, k, v = random(n, heads, queries, d), random(n, heads, keys, d), random(n, heads, keys, d)
    theirs = torch().nn.functional.scaled_dot_product_attention
    name = f"attention of {'x'.join(map(str, shape))}"
    yield Work(name, lambda: kernels.attention(q, k, v), lambda: theirs(q, k, v))
    if queries == keys:
        yield Work(
            f"{name}, causal",
            lambda: kernels.attention(q, k, v, causal=True),
            lambda: theirs(q, k, v, is_causal=True),
        )


def signals(random: Random) -> Iterator[Work]:
    """Convolutions along one axis, and of volumes."""
    k, f = kernels, torch().nn.functional
    for channels, length, filters, size, groups, dilation in (
        (1, 160000, 64, 400, 1, 1),
        (80, 3000, 384, 3, 1, 1),
        (512, 1000, 512, 3, 1, 4),
        (768, 1500, 768, 128, 16, 1),
        (512, 1000, 512, 31, 512, 1),
    ):
        x, w = random(2, channels, length), 0.1 * random(filters, channels // groups, size)
        places = (None, 1, size // 2, dilation, groups)
        sizes = f"{filters} filters of {size}/{dilation} in {groups} groups"
        yield Work(
            f"conv1d of 2x{channels}x{length}, {sizes}",
            lambda x=x, w=w, p=places: k.conv1d(x, w, *p),
            lambda x=x, w=w, p=places: f.conv1d(x, w, *p),
        )
    for channels, filters, extents in ((3, 64, (16, 56, 56)), (64, 64, (8, 28, 28))):
        x, w = random(1, channels, *extents), 0.1 * random(filters, channels, 3, 3, 3)
        yield Work(
            f"conv3d of 1x{channels}x{'x'.join(map(str, extents))}, {filters} of 3x3x3",
            lambda x=x, w=w: k.conv3d(x, w, None, 1, 1),
            lambda x=x, w=w: f.conv3d(x, w, None, 1, 1),
        )


def of_images(name: str, x: Any, random: Random) -> Iterator[Work]:
    """Functions of images [n, channel, row, column]."""
    t, k, f = torch(), kernels, torch().nn.functional
    pairs: dict[str, tuple[Call, Call]] = {
        "mean of images": (lambda: k.mean(x, (2, 3)), lambda: x.mean((2, 3))),
        "sum of channels": (lambda: k.sum(x, 1), lambda: x.sum(1)),
        "argmax of channels": (lambda: k.argmax(x, 1), lambda: x.argmax(1)),
        "softmax of channels": (lambda: k.softmax(x, 1), lambda: t.softmax(x, 1)),
        "max_pool2d 5x5": (lambda: k.max_pool2d(x, 5, 1, 2), lambda: f.max_pool2d(x, 5, 1, 2)),
        "avg_pool2d 2x2": (lambda: k.avg_pool2d(x, 2), lambda: f.avg_pool2d(x, 2)),
        "instance_norm": (lambda: k.instance_norm(x), lambda: f.instance_norm(x)),
        "batch_norm": (
            lambda: k.batch_norm(x, training=True),
            lambda: f.batch_norm(x, None, None, training=True),
        ),
    }
    for size in (1, 6):
        pairs[f"adaptive_avg_pool2d to {size}x{size}"] = (
            lambda n=size: k.adaptive_avg_pool2d(x, n),
            lambda n=size: f.adaptive_avg_pool2d(x, n),
        )
    if x.shape[1] % 4 == 0:
        pairs["group_norm"] = (lambda: k.group_norm(x, 4), lambda: f.group_norm(x, 4))
    for what, (ours, theirs) in pairs.items():
        yield Work(f"{what}, {name}", ours, theirs)
    yield from convolutions(name, x, random)


def convolutions(name: str, x: Any, random: Random) -> Iterator[Work]:
    """Of all channels, of few filters, of a few channels and of one each; 1x1; and turned."""
    k, f, c = kernels, torch().nn.functional, x.shape[1]
    grouped = ((c, c // 4, 1, 3),) if c % 4 == 0 else ()
    few = ((c, 1, 1, 3), (16, 1, 2, 3), (3, 1, 1, 3), (c, c, 1, 3), (c, c, 2, 5), (c, c, 1, 7))
    for filters, groups, stride, size in few + grouped:
        w = 0.1 * random(filters, c // groups, size, size)
        yield Work(
            f"conv2d {size}x{size}/{stride}, {filters} filters in {groups} groups, {name}",
            lambda w=w, s=stride, p=size // 2, g=groups: k.conv2d(x, w, None, s, p, groups=g),
            lambda w=w, s=stride, p=size // 2, g=groups: f.conv2d(x, w, None, s, p, groups=g),
        )
    w = 0.1 * random(2 * c, c, 1, 1)
    yield Work(f"conv2d 1x1, {name}", lambda: k.conv2d(x, w), lambda: f.conv2d(x, w))
    v = 0.1 * random(c, 16, 4, 4)
    yield Work(
        f"conv_transpose2d 4x4/2, {name}",
        lambda: k.conv_transpose2d(x, v, None, 2, 1),
        lambda: f.conv_transpose2d(x, v, None, 2, 1),
    )


def times_of(device: str, work: Work) -> tuple[float, float]:
    """Medians in milliseconds, in turns."""
    if device == "cuda":
        from bench.replays import medians

        found = medians({"ours": work.ours, "theirs": work.theirs}, rounds=5)
        return found["ours"], found["theirs"]
    spent: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS or len(spent[0]) < LEAST_TURNS:
        for call, times in zip((work.ours, work.theirs), spent, strict=True):
            time.sleep(PAUSE)
            call()  # what another's call left in the caches is no matter
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(spent[0]), statistics.median(spent[1])


def measured(device: str, work: Work) -> Row:
    """One work, checked."""
    found, expected = work.ours().double(), work.theirs().double()
    close = (found - expected).abs().max() <= TOLERANCE * expected.abs().max()
    ours, theirs = times_of(device, work)
    return Row(work.name, ours, theirs, theirs / ours, bool(close))


def main() -> None:
    """Measure, print, and list the slow ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", help="of torch, for all tensors of floats")
    parser.add_argument("--only", default="", help="works whose name has a match")
    parser.add_argument("--least", type=float, default=0.7)
    parser.add_argument("--networks", action="store_true", help="the works of bench/networks.py")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows, failed = list[Row](), list[str]()
    torch().backends.cudnn.allow_tf32 = False  # ours are exact
    dtype = getattr(torch(), options.dtype)

    def random(*shape: int) -> Any:
        return torch().randn(*shape, device=options.device, dtype=dtype)

    with torch().no_grad():
        for work in starmap(Work, networks.works(random)) if options.networks else works(random):
            if not re.search(options.only, work.name):
                continue
            try:
                rows.append(measured(options.device, work))
            except (RuntimeError, Error) as error:  # torch's, of a dtype that it lacks, or ours
                failed.append(f"{work.name}: {error}")
            else:
                r = rows[-1]
                wrong = "" if r.is_close else "  DIFFERENT"
                text = f"{r.name:70} {r.ours:9.4f} {r.torch:9.4f} ms {r.ratio:7.2f}{wrong}"
                print(text, flush=True)
    slow = sorted((r for r in rows if r.ratio < options.least), key=lambda r: r.ratio)
    print(f"{len(slow)} of {len(rows)} under {options.least} of torch")
    for r in slow:
        print(f"  {r.ratio:5.2f}  {r.name}")
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
