"""`python -m bench.sass`: instructions of kernels for sm_90a, beside CUDA written by hand.

Needs NVRTC and nvdisasm (`pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-nvdisasm`), and
no GPU. What counts is the code up to its last instruction; the branch to itself and the padding
behind it do not.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import cubepy as cp
from bench.stencils import flat_stencil, flat_stencil_of_numbers
from cubepy.compilers.cuda.toolchain import to_sass
from cubepy.targets import parse_target

TARGET = "cuda:sm_90a"


@cp.cube
def saxpy(x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32], a: cp.f32) -> None:
    i = cp.ABSOLUTE_POS
    if i < y.size:
        y[i] = a * x[i] + y[i]


SAXPY = """
extern "C" __global__ void __launch_bounds__(256)
saxpy(const float* __restrict__ x, float* __restrict__ y, int n, float a) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}
"""
STENCIL = """
extern "C" __global__ void __launch_bounds__(256)
stencil(const float* __restrict__ x, float* __restrict__ out, int h, int w) {
    const int p = blockIdx.x * 256 + threadIdx.x;
    if (p >= h * w) return;
    const int i = p / w, j = p % w;
    float v = x[p] * 4.0f;
    if (i > 0) v -= x[p - w];
    if (i + 1 < h) v -= x[p + w];
    if (j > 0) v -= x[p - 1];
    if (j + 1 < w) v -= x[p + 1];
    out[p] = v;
}
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel of ours, the same by hand, and the most instructions that we accept."""

    name: str
    ours: Callable[[], str]
    by_hand: str
    most: int


def rows() -> list[Row]:
    """Kernels for arrays of any length."""
    flat, image = "f32[?]", "f32[?,?]"
    stages = {"target": TARGET, "stage": "sass"}
    return [
        Row("saxpy", lambda: saxpy.inspect(flat, flat, "f32", **stages), SAXPY, 22),
        Row("flat stencil", lambda: flat_stencil.inspect(image, image, **stages), STENCIL, 85),
        Row(
            "flat stencil, h and w passed",
            lambda: flat_stencil_of_numbers.inspect(flat, flat, "i64", "i64", **stages),
            STENCIL,
            85,
        ),
    ]


def count(sass: str) -> int:
    """Instructions before the branch to itself that ends the code."""
    found = [m[1] for m in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+([^/;]+);", sass)]
    while found and re.match(r"NOP|BRA", found[-1].strip()):
        found.pop()
    return len(found)


def main() -> None:
    """Print a line for each kernel; fails where one has too many instructions."""
    target, failed = parse_target(TARGET), []
    for row in rows():
        ours, by_hand = count(row.ours()), count(to_sass(row.by_hand, target))
        print(f"{row.name:32} {ours:4} instructions, {by_hand:4} by hand, at most {row.most}")
        if ours > row.most:
            failed.append(row.name)
    if failed:
        raise SystemExit(f"too many: {', '.join(failed)}")


if __name__ == "__main__":
    main()
