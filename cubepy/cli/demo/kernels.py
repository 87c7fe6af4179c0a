"""The kernels of the demo: four small programs in the language, each with another idea.

Pictures are f32 between 0 and 1, colour planes first: `(3, height, width)`.
"""

from __future__ import annotations

import cubepy as cp

# An element-wise map. `Lines` are SIMD vectors, as wide as the device likes: this scalar-looking
# code runs 16 pixels at a time with AVX-512 and 4 at a time on a small ARM core. `exp` and `pow`
# are compiled into the loop, not called.


@cp.cube
def film(light: cp.f32, exposure: cp.f32, contrast: cp.f32) -> cp.f32:
    """How dark a film becomes where light falls on it: slow, then linear, then saturated."""
    return 1 - cp.exp(-exposure * cp.pow(light, contrast))


@cp.cube
def tone_curve(
    picture: cp.Lines[cp.f32], out: cp.Lines[cp.f32], exposure: cp.f32, contrast: cp.f32
):
    """Develop the picture as if it were on film; the brightest light remains white."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        white = film(1.0, exposure, contrast)
        out.flat[i] = film(picture.flat[i], exposure, contrast) / white


# A stencil. Units have a position on each axis; a constant 3 by 3 window is unrolled while the
# kernel is compiled, so that the zeros cost nothing.

SOBEL = ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))


@cp.cube
def sobel(image: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    """The strength of the edges of a grey `image`; `out` is smaller by the border."""
    x, y = cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Y
    if y < out.shape[0] and x < out.shape[1]:
        across, down = cp.f32(0), cp.f32(0)
        for dy in cp.unroll(range(3)):
            for dx in cp.unroll(range(3)):
                pixel = image[y + dy, x + dx]
                across += SOBEL[dy][dx] * pixel
                down += SOBEL[dx][dy] * pixel
        out[y, x] = cp.sqrt(across * across + down * down)


# A reduction, then a map that uses its result. Each unit reduces its own share of the picture into
# one number; the shares are so few that the host finishes the job.


@cp.cube
def extremes(picture: cp.Lines[cp.f32], low: cp.Tensor[cp.f32], high: cp.Tensor[cp.f32]):
    """The least and the greatest value of each unit's share of the picture."""
    share = cp.ABSOLUTE_POS
    if share < low.size:
        first = share * picture.size // low.size
        darkest = brightest = picture.flat[first]
        for i in range(first + 1, (share + 1) * picture.size // low.size):
            darkest = min(darkest, picture.flat[i])
            brightest = max(brightest, picture.flat[i])
        low[share] = darkest.min()
        high[share] = brightest.max()


@cp.cube
def stretch(picture: cp.Lines[cp.f32], out: cp.Lines[cp.f32], low: cp.f32, gain: cp.f32):
    """Move `low` to black and scale by `gain`."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = (picture.flat[i] - low) * gain


# Pooling. `size` is comptime: every size makes a kernel of its own, with its window unrolled. Each
# row of a window is loaded as one line; lanes are compared last.


@cp.cube
def pool(picture: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], size: cp.Comptime[int]):
    """The brightest of each `size` by `size` square."""
    x, y, plane = cp.ABSOLUTE_POS_X, cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_Z
    if plane < out.shape[0] and y < out.shape[1] and x < out.shape[2]:
        brightest = cp.load(picture, (plane, y * size, x * size), line=size)
        for row in cp.unroll(range(1, size)):
            line = cp.load(picture, (plane, y * size + row, x * size), line=size)
            brightest = max(brightest, line)
        out[plane, y, x] = brightest.max()
