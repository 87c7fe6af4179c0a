"""What the memory of this machine can do: read, copy, copy with streaming stores, triad."""

from collections.abc import Callable, Iterator

import numpy as np

from bench import kernels, peers
from bench.arrays import make_empty, make_random, to_f64
from bench.suite import Case, Contender, Row, only_present

GROUP = "bandwidth"
ELEMENTS = 64 << 20
LANES = 16  # of a line of the widest registers; fewer only make `read`'s result shorter


def rows() -> Iterator[Row]:
    """All limits with one thread, then with all."""
    for threads in sorted({1, peers.all_cores()}):
        label = f"{threads} thread{'s' if threads > 1 else ''}"
        yield Row(GROUP, label, _make, threads=threads)


def _make(small: bool) -> Case:
    n = 4096 if small else ELEMENTS
    x, y, out = make_random((n,), 0), make_random((n,), 1), make_empty((n,))
    contenders = [
        _make_read(x),
        *_make_copies(x, out),
        _make_triad(x, y, out),
        _make_torch_copy(x, out),
    ]
    return Case(only_present(contenders), rtol=1e-5, atol=1e-4)


def find_copies(nbytes: int) -> list[Contender]:
    """Copies that read and write `nbytes` together, the roof of kernels that move as much."""
    n = max(1, nbytes // 8)
    return _make_copies(make_random((n,)), make_empty((n,)))


def make_roof_read(x: np.ndarray) -> Contender:
    """A kernel that only reads `x`: the roof of reductions."""
    whole = x.size // (4 * LANES) * 4 * LANES
    return _make_read(x.reshape(-1)[:whole])


def _make_read(x: np.ndarray) -> Contender:
    cubes = -(-x.size // (LANES * kernels.READ_LINES))
    out = np.zeros(cubes * LANES, np.float32)
    launch = kernels.read.configure(line_size=LANES)[cubes, 1].bind(x, out)
    return Contender(
        "cubepy",
        launch,
        "read",
        x.nbytes,
        result=lambda: out.sum(dtype=np.float64),
        reference=lambda: to_f64(x).sum(),
    )


def _make_copies(x: np.ndarray, out: np.ndarray) -> list[Contender]:
    return [
        _make_copy("copy", kernels.copy.over(out).bind(x, out), x, out),
        _make_copy("copy, streaming stores", kernels.copy_stream.over(out).bind(x, out), x, out),
    ]


def _make_copy(way: str, call: Callable[[], None], x: np.ndarray, out: np.ndarray) -> Contender:
    nbytes = x.nbytes + out.nbytes
    return Contender("cubepy", call, way, nbytes, result=lambda: out, reference=lambda: x)


def _make_triad(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> Contender:
    return Contender(
        "cubepy",
        kernels.triad.over(out).bind(x, y, 3.0, out),
        "triad, streaming stores",
        x.nbytes + y.nbytes + out.nbytes,
        result=lambda: out,
        reference=lambda: to_f64(x) + 3 * to_f64(y),
    )


def _make_torch_copy(x: np.ndarray, out: np.ndarray) -> Contender | None:
    if not peers.find("torch"):
        return None
    source, target = peers.as_torch(x), peers.as_torch(out)
    return Contender(
        "torch",
        lambda: target.copy_(source),
        "copy_",
        x.nbytes + out.nbytes,
        result=lambda: out,
        reference=lambda: x,
    )


COPIES = ("cubepy copy", "cubepy copy, streaming stores")
READ = ("cubepy read",)
