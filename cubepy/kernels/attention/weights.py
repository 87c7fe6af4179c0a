"""Weights of attention by tensor cores: what scores of a warpgroup or a plane become, in registers.

A unit holds two rows of each result of `wgmma` or `mma`, 8 apart, and two neighbours of each 8
columns; four units share a row.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.weighing import LOWEST, portion
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.record import dataclass

LN_2, LOG2_E = 0.6931471805599453, 1.4426950408889634
LEAST = -(2.0**120)
"""What finite masks add at least: it stays finite when it is scaled by less than 2^7."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the two queries of a unit see: the key behind their last, with a window their first;
    their masks, and what scales these."""

    limits: Any
    lows: Any
    masks: Any
    share: Any


def seen_by(
    masks: Any, where: Any, row: Any, extents: Any, window: Any, scale: Any, t: Any
) -> Seen:
    """What the queries of a unit see, the first of which is `row`."""
    keys = cp.i32(extents[3])
    limits = seen_to(row, keys, window, t), seen_to(row + 8, keys, window, t)
    lows = (seen_from(row, window), seen_from(row + 8, window)) if len(window) else ()
    if len(masks) == 0:
        return Seen(limits, lows, (), scale)
    last = cp.i32(extents[2]) - 1
    mask = masks[0][where[0], where[1]]
    return Seen(limits, lows, (mask[min(row, last)], mask[min(row + 8, last)]), 1 / scale)


def hidden(scores: Any, seen: Any, first_key: Any, unit: Any, t: Any) -> Any:
    """Scores of a step without those of keys that queries do not see."""
    found = cp.local(t.keys // 2, cp.f32)
    own = first_key + unit % 4 * 2
    for i in cp.unroll(range(t.keys // 2)):
        column, row = i // 4 * 8 + i % 2, i // 2 % 2
        sees = column < seen.limits[row] - own
        if len(seen.lows):
            sees = sees and column >= seen.lows[row] - own
        if len(seen.masks) == 0:
            found[i] = scores[i] if sees else cp.f32(LOWEST)
        else:
            found[i] = cp.f32(LOWEST)
            if sees:
                found[i] = with_mask(scores[i], seen.masks[row][own + column], seen.share)
    return cp.load(found, 0, line=t.keys // 2)


def with_mask(score: Any, mask: Any, share: Any) -> Any:
    """A score plus the mask in the same measure, or only where it is true. A finite mask stays
    finite, so that rows of the least floats are means, not hidden."""
    if mask.dtype == cp.bool_:
        return score if mask else cp.f32(LOWEST)
    least = cp.f32(LOWEST) if cp.f32(mask) == cp.f32(LOWEST) else cp.f32(LEAST)
    return score + max(cp.f32(mask) * share, least)


def weigh(scores: Any, state: Any, factor: Any, has_mask: bool, t: Any) -> Any:
    """Exponentials of scores times 2 to the `t.shift`, the state with them, and the scales of what
    was summed before.

    With a mask the greatest score is subtracted before both are scaled, which takes longer: of
    large numbers that are alike, products would leave their rounding.
    """
    high, low = of_row(scores, 0, state[0], factor, t), of_row(scores, 1, state[1], factor, t)
    weights = cp.local(t.keys // 2, cp.f32)
    parts = cp.local(8, cp.f32, fill=0)
    bases = tuple(row[1] * factor - t.shift if t.shift else row[1] * factor for row in (high, low))
    for i in cp.unroll(range(t.keys // 2)):
        if has_mask:
            above = (scores[i] - (high, low)[i // 2 % 2][1]) * factor
            weights[i] = power(above + t.shift if t.shift else above)
        else:
            weights[i] = power(scores[i] * factor - bases[i // 2 % 2])
        parts[i % 8] = parts[i % 8] + weights[i]
    one = (parts[0] + parts[1]) + (parts[4] + parts[5])
    two = (parts[2] + parts[3]) + (parts[6] + parts[7])
    state = high[0], low[0], state[2] * high[2] + one, state[3] * low[2] + two
    return cp.load(weights, 0, line=t.keys // 2), state, (high[2], low[2])


def of_row(scores: Any, row: Any, top: Any, factor: Any, t: Any) -> Any:
    """The greatest score so far of one row, what is subtracted, and the scale of earlier sums."""
    parts = cp.local(4, cp.f32, fill=LOWEST)
    parts[0] = top
    for i in cp.unroll(range(t.keys // 4)):
        lane = i // 2 * 4 + i % 2 + 2 * row
        parts[i % 4] = max(parts[i % 4], scores[lane])
    most = max(max(parts[0], parts[1]), max(parts[2], parts[3]))
    most = max(most, cp.plane_shuffle_xor(most, 1))
    most = max(most, cp.plane_shuffle_xor(most, 2))
    base = cp.f32(0) if most == cp.f32(LOWEST) else most
    return most, base, power((top - base) * factor)


def power(x: Any) -> Any:
    """2 to the x: within 2 ULP, 0 below 2^-126."""
    return cp.cuda.ptx("ex2.approx.ftz.f32 %0, %1;", x, result=cp.f32)


def scaled(sums: Any, scales: Any) -> Any:
    """Sums times the scale of their row."""
    found = cp.local(sums.line_size, cp.f32)
    for i in cp.unroll(range(sums.line_size)):
        found[i] = sums[i] * scales[i // 2 % 2]
    return cp.load(found, 0, line=sums.line_size)


def portions(sums: Any, shares: Any) -> Any:
    """The `portion` of each of the sums."""
    found = cp.local(sums.line_size, cp.f32)
    for i in cp.unroll(range(sums.line_size)):
        found[i] = portion(sums[i], shares[i // 2 % 2])
    return cp.load(found, 0, line=sums.line_size)


def scaled_with(sums: Any, scales: Any, more: Any) -> Any:
    """Sums times the scale of their row, and more."""
    found = cp.local(sums.line_size, cp.f32)
    for i in cp.unroll(range(sums.line_size)):
        found[i] = sums[i] * scales[i // 2 % 2] + more[i]
    return cp.load(found, 0, line=sums.line_size)


def packed(values: Any, dtype: Any) -> Any:
    """Pairs of neighbours as words, rounded to a type."""
    words = cp.local(values.line_size // 2, cp.u32)
    kind = "bf16x2" if dtype == cp.bf16 else "f16x2"
    for i in cp.unroll(range(values.line_size // 2)):
        words[i] = cp.cuda.ptx(
            f"cvt.rn.{kind}.f32 %0, %2, %1;", values[2 * i], values[2 * i + 1], result=cp.u32
        )
    return cp.load(words, 0, line=values.line_size // 2)


def factor_words(weights: Any, t: Any) -> Any:
    """Weights as the left factor of products, rounded to the type of the values, or of 8 bits to
    f8e4m3. Then a unit gives four places of each 16 keys to the keys that it has: 2n, 2n + 1, 2n +
    8 and 2n + 9 are at 4n to 4n + 3 (as in FlashAttention-3); see `turning`."""
    if t.dtype.bits > 8:
        return packed(weights, t.dtype)
    words = cp.local(t.keys // 8, cp.u32)
    for i in cp.unroll(range(t.keys // 8)):
        first = i // 4 * 16 + i // 2 % 2 * 8 + i % 2 * 2
        words[i] = cp.cuda.ptx(
            "{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; "
            "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }",
            weights[first],
            weights[first + 1],
            weights[first + 4],
            weights[first + 5],
            result=cp.u32,
        )
    return cp.load(words, 0, line=t.keys // 8)


def whole(total: Any) -> Any:
    """The sum over the units that have parts of a row."""
    total = total + cp.plane_shuffle_xor(total, 1)
    return total + cp.plane_shuffle_xor(total, 2)
