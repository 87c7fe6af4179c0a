"""The weights of convolutions on CPUs, in panels of lines of filters."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.types import DType, i8, u8
from cubepy.kernels.matmul.blocks import transposed
from cubepy.record import dataclass

NO_AXIS, CHANNEL_AXIS, TAP_AXIS = 0, 1, 4
"""What lies side by side in weights, by its axis."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Weights in panels: for each `lines` lines of `line` filters, for each part of `depth`
    channels, for each tap, one line after the other for each channel. Zeros stand for the channels
    that the last part lacks; lanes beyond the last filter repeat it: numbers below the smallest
    normal one, which memory may hold otherwise, take processors a hundred times as long.

    `dtype`: of sums, `factors`: of weights. Where these have half or a quarter of the bits, each
    line has two or four channels, which lie beside each other for each filter, as `cp.dot` and
    matrix units take them. `has_unit`: they are for a matrix unit.
    """

    lines: int
    line: int
    depth: int
    dtype: DType
    factors: DType
    has_unit: bool = False

    @property
    def step(self) -> int:
        """Filters of a panel."""
        return self.lines * self.line

    @property
    def wide(self) -> int:
        """Filters that are multiplied at once: those of a panel, but dot products by lines."""
        return self.step if self.word == 1 else self.line

    @property
    def stored(self) -> DType:
        """The type of what is in memory."""
        return self.factors

    @property
    def word(self) -> int:
        """Channels of a line."""
        return self.dtype.itemsize // self.factors.itemsize

    @property
    def is_moved(self) -> bool:
        """Whether elements of the array are brought as bytes of the other sign, moved by 128, since
        processors multiply unsigned bytes by signed ones."""
        return self.factors.bits == 8 and not self.has_unit

    @property
    def pixels(self) -> DType:
        """The type of the elements of the array that weights are multiplied by."""
        if self.is_moved:
            return i8 if self.factors is u8 else u8
        return self.factors

    def panels(self, filters: int) -> int:
        """Panels of one group."""
        return -(-filters // self.step)

    def parts(self, channels: int) -> int:
        """Parts of the channels of one group."""
        return -(-channels // self.depth)

    def elements(self, groups: int, filters: int, channels: int, taps: int) -> int:
        """The size of all panels."""
        each = self.parts(channels) * self.depth * taps * self.step
        return groups * self.panels(filters) * each


@cp.cube
def pack_weights(
    weight: cp.Tensor,
    panels: cp.Tensor,
    groups: int,
    dense: cp.Comptime[int],
    t: cp.Comptime[Packing],
) -> None:
    """Weights [filter, channel, depth, row, column] as panels; a cube for each part of a panel.

    `dense`: the axis whose elements lie side by side, which go square by square: `TAP_AXIS` of a
    row, or `CHANNEL_AXIS`, with axes [filter, depth, row, column, channel]; `NO_AXIS` goes one by
    one.
    """
    channels = weight.shape[4 if dense == CHANNEL_AXIS else 1]
    filters, parts = weight.shape[0] // groups, (channels + t.depth - 1) // t.depth
    count = (filters + t.step - 1) // t.step
    part, panel = cp.CUBE_POS % parts, cp.CUBE_POS // parts
    f0, c0 = panel % count * t.step, part * t.depth
    own = weight[panel // count * filters + f0 :][: min(t.step, filters - f0)]
    extents = weight.shape[1:4] if dense == CHANNEL_AXIS else weight.shape[2:]
    near = cp.shared((t.word * t.line, t.line), t.factors)
    at = cp.CUBE_POS * (extents[0] * extents[1] * extents[2] * t.depth * t.step)
    end = min(c0 + t.depth, channels)
    for line in range(t.lines):
        some, place = own[min(line * t.line, own.shape[0] - 1) :], at + line * (t.line * t.word)
        for z in range(extents[0]):
            for y in range(extents[1]):
                row = (z * extents[1] + y) * extents[2]
                into = panels[place + row * (t.depth * t.step) :]
                if dense == CHANNEL_AXIS:
                    for x in range(extents[2]):
                        tap = into[x * (t.depth * t.step) :]
                        pack_channels(some[:, z, y, x], tap, near, c0, end, t)
                elif dense == TAP_AXIS:
                    pack_taps(some[:, :, z, y], into, near, c0, end, t)
                else:
                    pack_each(some[: t.line, :, z, y], into, c0, end, t)


@cp.cube
def pack_filters(
    weight: cp.Tensor, panels: cp.Tensor, groups: int, t: cp.Comptime[Packing]
) -> None:
    """As `pack_weights`, for weights [channel, depth, row, column, filter], whose filters lie side
    by side: line by line."""
    channels, filters = weight.shape[0], weight.shape[4] // groups
    parts, count = (channels + t.depth - 1) // t.depth, (filters + t.step - 1) // t.step
    part, panel = cp.CUBE_POS % parts, cp.CUBE_POS // parts
    c0, begin = part * t.depth, panel // count * filters
    f0, end = panel % count * t.step, min(c0 + t.depth, channels)
    at = cp.CUBE_POS * (weight.shape[1] * weight.shape[2] * weight.shape[3] * t.depth * t.step)
    for z in range(weight.shape[1]):
        for y in range(weight.shape[2]):
            for x in range(weight.shape[3]):
                tap = weight[:end, z, y, x, begin : begin + filters]
                for c in range(0, t.depth, t.word):
                    for line in range(t.lines):
                        v = word_of(lines_of(tap, c0 + c, f0 + line * t.line, t), t)
                        cp.store(panels, at + line * (t.line * t.word), v, whole=True)
                    at += t.step * t.word


def lines_of(weight: Any, first: Any, begin: Any, t: Any) -> Any:
    """A line of filters from `begin` on of weights [channel, filter], for each channel of a word
    from `first` on; zeros for what is not there."""
    lines = ()
    for c in cp.unroll(range(t.word)):
        row = weight[min(first + c, weight.shape[0] - 1)]
        seen = row[: row.shape[0] if first + c < weight.shape[0] else 0]
        v = cp.load(seen, begin, line=t.line)
        lines += (cp.Line[t.factors, t.line](v),)
    return lines


def pack_channels(weight: Any, into: Any, near: Any, c0: Any, end: Any, t: Any) -> None:
    """Weights [filter, channel] of one tap, the channels [c0, end)."""
    for c in range(0, t.depth, t.line):
        turn_square(weight[:, :end], near, c0 + c, t)
        for lane in range(0, min(t.line, t.depth - c), t.word):
            rows = tuple(near[lane + k] for k in range(t.word))
            v = word_of(tuple(cp.load(row, 0, line=t.line, fill=None) for row in rows), t)
            cp.store(into, (c + lane) * t.step, v, whole=True)


def pack_taps(weight: Any, into: Any, near: Any, c0: Any, end: Any, t: Any) -> None:
    """Weights [filter, channel, tap] of a row of taps, the channels [c0, end)."""
    taps = weight.shape[2]
    for c in range(0, t.depth, t.word):
        for first in range(0, taps, t.line):
            for k in range(t.word):
                seen = weight[:, min(c0 + c + k, end - 1)]
                there = taps if c0 + c + k < end else 0
                turn_square(seen[:, :there], near[k * t.line :], first, t)
            for lane in range(min(t.line, taps - first)):
                rows = tuple(near[lane + k * t.line] for k in range(t.word))
                v = word_of(tuple(cp.load(row, 0, line=t.line, fill=None) for row in rows), t)
                cp.store(into, (first + lane) * (t.depth * t.step) + c * t.step, v, whole=True)


def pack_each(weight: Any, into: Any, c0: Any, end: Any, t: Any) -> None:
    """As `pack_taps`, element by element."""
    for c in range(t.depth):
        for x in range(weight.shape[2]):
            tap = into[x * (t.depth * t.step) + c // t.word * (t.word * t.step) + c % t.word :]
            for f in range(t.line):
                v = t.factors(0)
                if c0 + c < end:
                    v = t.factors(weight[min(f, weight.shape[0] - 1), c0 + c, x])
                tap[f * t.word] = v


def turn_square(weight: Any, near: Any, begin: Any, t: Any) -> None:
    """A line of filters for each element from `begin` on of weights [filter, element]; zeros for
    elements that are not there, and the last filter for those."""
    last = weight.shape[0] - 1
    # a bound of run time, so that rows are not unrolled, which takes long to compile
    for k in range(min(t.line, weight.shape[0] + t.line)):
        v = cp.load(weight[min(k, last)], begin, line=t.line)
        cp.store(near[k], 0, cp.Line[t.factors, t.line](v), whole=True)
    found = transposed(tuple(cp.load(near[k], 0, line=t.line, fill=None) for k in range(t.line)))
    for lane in cp.unroll(range(t.line)):
        cp.store(near[lane], 0, found[lane], whole=True)


def word_of(lines: Any, t: Any) -> Any:
    """What lines have for each filter, beside each other."""
    if t.word == 1:
        return lines[0]
    found = cp.concat(lines[0], lines[1])
    if t.word == 4:
        found = cp.concat(found, cp.concat(lines[2], lines[3]))
    return found[tuple(e * t.line + k for k in range(t.line) for e in range(t.word))]
