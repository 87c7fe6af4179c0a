"""The kernel of random numbers: blocks of words, what distributions make of them, their order."""

from __future__ import annotations

from math import factorial, pi
from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import count_up
from cubepy.kernels.random.philox import philox
from cubepy.kernels.random.problem import Distribution
from cubepy.record import dataclass

SEED, OFFSET, FIRST, SECOND = range(4)
"""What the state holds: the key, the number of the first element, and of the distribution two."""


@dataclass(frozen=True, slots=True)
class RandomTiling:
    """A unit makes `steps` times `line` blocks, side by side."""

    line: int
    steps: int


# Words


def halves(v: Any) -> Any:
    """The lower and the upper word of 64 bits."""
    return cp.u32(v & 0xFFFFFFFF), cp.u32(v >> 32)


def words_of(block: Any, seed: Any, line: Any) -> Any:
    """Four lines of words: lane k has those of block number `block` + k."""
    low, high = halves(block)
    first = count_up(line, cp.u32) + low
    carry = cp.where(first < low, cp.Line[cp.u32, line](1), cp.Line[cp.u32, line](0))
    zero = cp.Line[cp.u32, line](0)
    return philox((first, carry + high, zero, zero), halves(seed))


def long_words(words: Any) -> Any:
    """Two lines of words of 64 bits; the first word of each pair is the lower one."""
    a, b, c, d = words
    return (cp.u64(b) << 32) | cp.u64(a), (cp.u64(d) << 32) | cp.u64(c)


def in_order(lines: Any) -> Any:
    """Lines whose lanes are blocks as one line, block by block."""
    return turned(together(lines), lines[0].line_size)


def together(lines: Any) -> Any:
    """Lines as one, one behind the other."""
    if len(lines) == 1:
        return lines[0]
    half = len(lines) // 2
    return cp.concat(together(lines[:half]), together(lines[half:]))


def turned(v: Any, lanes: Any) -> Any:
    """A line whose position bits are turned right by log2(lanes)."""
    if lanes == 1:
        return v
    return turned(cp.concat(v[::2], v[1::2]), lanes // 2)


# Distributions


def fractions(word: Any, draw: Any) -> Any:
    """Words as the multiples of 2**-p in [0, 1), where the dtype has p bits of precision."""
    if draw.is_long:
        return cp.f64(cp.i64(word >> 11)) * 2.0**-53
    bits = PRECISION[draw.dtype.name]
    return cp.f32(cp.i32(word >> (32 - bits))) * 2.0**-bits


PRECISION = {"f32": 24, "f16": 11, "bf16": 8}


def number(state: Any, place: Any, draw: Any) -> Any:
    """A number of the distribution, which the state holds as bits."""
    if draw.computed == cp.f64:
        return cp.bitcast(state[place], cp.f64)
    return cp.bitcast(cp.i32(state[place]), cp.f32)


def uniform_numbers(words: Any, state: Any, draw: Any) -> Any:
    """low + (high - low) * u, rounded once more for small floats."""
    low, span = number(state, FIRST, draw), number(state, SECOND, draw)
    given = long_words(words) if draw.is_long else words
    return tuple(draw.dtype(cp.fma(fractions(w, draw), span, low)) for w in given)


def raw_bits(words: Any, draw: Any) -> Any:
    """Words as integers: their upper bits where these are smaller."""
    if draw.is_long:
        return tuple(draw.dtype(w) for w in long_words(words))
    shift = 32 - draw.dtype.bits
    return tuple(draw.dtype(w >> shift) for w in words)


def trials(words: Any, state: Any, draw: Any) -> Any:
    """1 where the uniform number of f32 is below the probability, else 0."""
    limit = cp.u32(state[FIRST])
    made = tuple(w >> 8 < limit for w in words)
    if draw.dtype == cp.bool_:
        return made
    lanes = words[0].line_size
    one, zero = cp.Line[draw.dtype, lanes](1), cp.Line[draw.dtype, lanes](0)
    return tuple(cp.where(w, one, zero) for w in made)


SINE = tuple((-1) ** k / factorial(2 * k + 1) for k in range(9))
COSINE = tuple((-1) ** k / factorial(2 * k) for k in range(9))
"""Taylor's series, which within an eighth of a turn needs 5 terms in f32, 9 in f64."""


def horner(x: Any, coefficients: Any) -> Any:
    """A polynomial with its lowest coefficient first."""
    if len(coefficients) == 1:
        return coefficients[0]
    return horner(x, coefficients[1:]) * x + coefficients[0]


def sine_and_cosine(word: Any, draw: Any) -> Any:
    """Of a fraction of a turn, given as a word; quadrants are taken off exactly."""
    bits, terms = (64, 9) if draw.is_long else (32, 5)
    unit = cp.u64 if draw.is_long else cp.u32
    signed = cp.i64 if draw.is_long else cp.i32
    quadrant = (word + unit(1 << (bits - 3))) >> (bits - 2)
    rest = cp.bitcast(word - (quadrant << (bits - 2)), signed)
    t = draw.computed(rest) * (2 * pi / 2.0**bits)
    s, c = t * horner(t * t, SINE[:terms]), horner(t * t, COSINE[:terms])
    odd = (quadrant & 1) != 0
    sine, cosine = cp.where(odd, c, s), cp.where(odd, s, c)
    sine = cp.where(quadrant >= 2, -sine, sine)
    return sine, cp.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)


def normal_pair(a: Any, b: Any, draw: Any) -> Any:
    """Two normal numbers of two words (Box and Muller, 1958)."""
    if draw.is_long:
        u = (cp.f64(cp.i64(a >> 11)) + 0.5) * 2.0**-53
    else:
        u = cp.fma(cp.f32(a), 2.0**-32, 2.0**-33)
    radius = cp.sqrt(-2 * cp.log(u))
    sine, cosine = sine_and_cosine(b, draw)
    return radius * cosine, radius * sine


def normal_numbers(words: Any, state: Any, draw: Any) -> Any:
    """mean + std * z, rounded once more for small floats."""
    mean, std = number(state, FIRST, draw), number(state, SECOND, draw)
    w = long_words(words) if draw.is_long else words
    first = normal_pair(w[0], w[1], draw)
    rest = () if draw.is_long else normal_pair(w[2], w[3], draw)
    return tuple(draw.dtype(cp.fma(z, std, mean)) for z in (*first, *rest))


def numbers_of(words: Any, state: Any, draw: Any) -> Any:
    """The numbers of some blocks."""
    if draw.name == "uniform":
        return uniform_numbers(words, state, draw)
    if draw.name == "normal":
        return normal_numbers(words, state, draw)
    return trials(words, state, draw) if draw.name == "bernoulli" else raw_bits(words, draw)


@cp.cube
def draw_numbers(
    state: cp.Tensor,
    out: cp.Tensor,
    draw: cp.Comptime[Distribution],
    tiling: cp.Comptime[RandomTiling],
) -> None:
    """A unit fills what its blocks give; the first and the last block may be needed in part."""
    count, line = draw.count, tiling.line
    offset, seed = cp.bitcast(state[OFFSET], cp.u64), cp.bitcast(state[SEED], cp.u64)
    shift = state[OFFSET] % count
    for k in range(tiling.steps):
        first = (cp.ABSOLUTE_POS * tiling.steps + k) * line
        at = first * count - shift
        if at < out.size:
            words = words_of(offset // count + cp.u64(first), seed, line)
            v = in_order(numbers_of(words, state, draw))
            if at >= 0 and at + line * count <= out.size:
                cp.store(out, at, v, whole=True)
            else:
                cp.store(out, at, v)
