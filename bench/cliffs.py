"""Prebuilt functions beside eager torch over shapes that networks and tables have, and odd ones:
`python -m bench.cliffs [--device cuda] [--only REGEX] [--least RATIO] [--json FILE]`.

Other benchmarks measure shapes with floors; this one looks for those that nobody thought of: rows
of ten columns, three long columns, images of three channels, one filter for each channel. It prints
each work's milliseconds, and at the end those where ours is slower than `--least` of torch. On a
CPU both have all cores, take turns, and make their results; on a GPU times are those of replays of
graphs, and cuDNN has no tf32, as ours has none. Results are compared too.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.gpu_arrays import torch

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
IMAGES = ((8, 64, 56, 56), (2, 3, 224, 224), (32, 256, 7, 7), (4, 16, 300, 301), (1, 512, 14, 14))
TOLERANCE, SECONDS, LEAST_TURNS = 3e-2, 0.25, 4
MOST_COLUMNS = 1 << 16
"""Columns of a matrix that is a factor, at most."""

Call = Callable[[], Any]


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


def works(device: str) -> Iterator[Work]:
    """All works, whose tensors are made as they come."""
    for shape in MATRICES:
        yield from of_axes(device, shape)
        yield from of_rows(device, shape)
        yield from products(device, shape)
    for shape in IMAGES:
        x = torch().randn(*shape, device=device)
        name = "x".join(map(str, shape))
        yield from of_images(name, x)
        last = x.contiguous(memory_format=torch().channels_last)
        yield from of_images(f"{name} channels last", last)


def of_axes(device: str, shape: tuple[int, int]) -> Iterator[Work]:
    """Functions along one axis of a matrix."""
    t, k = torch(), kernels
    x = t.randn(*shape, device=device)
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


def of_rows(device: str, shape: tuple[int, int]) -> Iterator[Work]:
    """Functions of the rows of a matrix, and of all its elements."""
    t, k, f = torch(), kernels, torch().nn.functional
    (rows, n), x = shape, torch().randn(*shape, device=device)
    w, places = t.ones(n, device=device), t.randint(0, rows, (rows,), device=device)
    labels = t.randint(0, n, (rows,), device=device)
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


def products(device: str, shape: tuple[int, int]) -> Iterator[Work]:
    """Products of a matrix and few columns, and of its transpose."""
    t, k = torch(), kernels
    (rows, n), x = shape, torch().randn(*shape, device=device)
    if n > MOST_COLUMNS:
        return
    few, tall, w = (t.randn(*s, device=device) for s in ((n, 32), (rows, 32), (n,)))
    size = f"{rows}x{n}"
    yield Work(f"matmul, {size} by 32", lambda: k.matmul(x, few), lambda: x @ few)
    yield Work(f"matmul, {size} turned by 32", lambda: k.matmul(x.T, tall), lambda: x.T @ tall)
    yield Work(f"matmul, {size} by a vector", lambda: k.matmul(x, w), lambda: x @ w)


def of_images(name: str, x: Any) -> Iterator[Work]:
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
    yield from convolutions(name, x)


def convolutions(name: str, x: Any) -> Iterator[Work]:
    """Those of all channels, of few filters, and of one channel each; 1x1; and turned."""
    t, k, f, c = torch(), kernels, torch().nn.functional, x.shape[1]
    for filters, groups, stride in ((c, 1, 1), (16, 1, 2), (3, 1, 1), (c, c, 1)):
        w = 0.1 * t.randn(filters, c // groups, 3, 3, device=x.device)
        yield Work(
            f"conv2d 3x3/{stride}, {filters} filters in {groups} groups, {name}",
            lambda w=w, s=stride, g=groups: k.conv2d(x, w, None, s, 1, groups=g),
            lambda w=w, s=stride, g=groups: f.conv2d(x, w, None, s, 1, groups=g),
        )
    w = 0.1 * t.randn(2 * c, c, 1, 1, device=x.device)
    yield Work(f"conv2d 1x1, {name}", lambda: k.conv2d(x, w), lambda: f.conv2d(x, w))
    v = 0.1 * t.randn(c, 16, 4, 4, device=x.device)
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
            call()  # what another's call left in the caches is no matter
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(spent[0]), statistics.median(spent[1])


def measured(device: str, work: Work) -> Row:
    """One work, checked."""
    found, expected = work.ours(), work.theirs()
    close = torch().allclose(found.double(), expected.double(), TOLERANCE, TOLERANCE)
    ours, theirs = times_of(device, work)
    return Row(work.name, ours, theirs, theirs / ours, bool(close))


def main() -> None:
    """Measure, print, and list the slow ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="works whose name has a match")
    parser.add_argument("--least", type=float, default=0.7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = list[Row]()
    torch().backends.cudnn.allow_tf32 = False  # ours are exact
    with torch().no_grad():
        for work in works(options.device):
            if re.search(options.only, work.name):
                rows.append(measured(options.device, work))
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


if __name__ == "__main__":
    main()
