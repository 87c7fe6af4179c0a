"""Rooflines of a record of `bench.models` as SVG text: the same record gives the same bytes.

On the left, works whose products are counted, by operations for each byte that must move, under the
rates of a large copy and of a large product. On the right, the others, by the bytes that they move,
under the copy. Arrays that a cache holds may lie above either roof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.models.record import Record, Row

WIDTH, HEIGHT, LEFT, TOP, GAP = 460, 340, 64, 46, 90
COLOURS = {"ResNet-50": "#1f77b4", "BERT base": "#d9730d", "Llama 3 8B": "#2a8a3c"}
MEANINGS = "filled: CubePy; hollow: torch; black: a large copy, a large product"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Axes:
    """Decades from `low` to `high` in both directions, at `left` in the picture."""

    left: int
    low: tuple[int, int]
    high: tuple[int, int]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies in the picture."""
        across, up = (
            (math.log10(v) - low) / (high - low)
            for v, low, high in zip((x, y), self.low, self.high, strict=True)
        )
        return self.left + WIDTH * across, TOP + HEIGHT * (1 - up)


def draw(record: Record) -> str:
    """The whole picture."""
    counted = [row for row in record.rows if row.flops]
    others = [row for row in record.rows if not row.flops]
    lines = [*_head(), *_products(counted, record), *_movements(others, record), *_legend()]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _head() -> Iterator[str]:
    width, height = 2 * WIDTH + 2 * LEFT + GAP, TOP + HEIGHT + 56
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{width}" height="{height}" fill="white"/>'


def _products(rows: list[Row], record: Record) -> Iterator[str]:
    """FLOP/s by intensity."""
    copy, product = 1e9 * record.roofs.copy, 1e9 * record.roofs.product

    def point(row: Row, seconds: float) -> tuple[float, float]:
        return row.flops / row.nbytes, row.flops / seconds

    axes = _axes(rows, point, LEFT, product)
    yield from _frame(axes, "operations for each byte", "FLOP/s")
    start, ridge, end = 10.0 ** axes.low[0], product / copy, 10.0 ** axes.high[0]
    start = max(start, 10.0 ** axes.low[1] / copy)
    yield _roof(
        [axes.place(start, start * copy), axes.place(ridge, product), axes.place(end, product)]
    )
    yield from _points(rows, axes, point)


def _movements(rows: list[Row], record: Record) -> Iterator[str]:
    """Bytes per second by bytes."""
    copy = 1e9 * record.roofs.copy

    def point(row: Row, seconds: float) -> tuple[float, float]:
        return row.nbytes, row.nbytes / seconds

    axes = _axes(rows, point, LEFT + WIDTH + GAP, copy)
    yield from _frame(axes, "bytes that must move", "bytes per second")
    ends = (10.0 ** axes.low[0], 10.0 ** axes.high[0])
    yield _roof([axes.place(x, copy) for x in ends])
    yield from _points(rows, axes, point)


Point = Callable[[Row, float], tuple[float, float]]


def _axes(rows: list[Row], point: Point, left: int, roof: float) -> Axes:
    """Whole decades around all points and the roof."""
    places = [point(row, seconds) for row in rows for seconds in (row.ours, row.theirs)]
    xs, ys = [x for x, _ in places], [*(y for _, y in places), roof]
    low = math.floor(math.log10(min(xs))), math.floor(math.log10(min(ys)))
    high = math.floor(math.log10(max(xs))) + 1, math.floor(math.log10(max(ys))) + 1
    return Axes(left, low, high)


def _frame(axes: Axes, across: str, up: str) -> Iterator[str]:
    """Lines and labels of decades, and what the axes are."""
    yield (
        f'<rect x="{axes.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" '
        'fill="none" stroke="#888"/>'
    )
    for k in range(axes.low[0], axes.high[0] + 1):
        x, _ = axes.place(10.0**k, 10.0 ** axes.low[1])
        yield f'<path d="M{x:.1f} {TOP}v{HEIGHT}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{_short(k)}</text>'
    for k in range(axes.low[1], axes.high[1] + 1):
        _, y = axes.place(10.0 ** axes.low[0], 10.0**k)
        yield f'<path d="M{axes.left} {y:.1f}h{WIDTH}" stroke="#ddd"/>'
        yield f'<text x="{axes.left - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(k)}</text>'
    middle = axes.left + WIDTH // 2
    yield f'<text x="{middle}" y="{TOP + HEIGHT + 36}" text-anchor="middle">{across}</text>'
    yield f'<text x="{axes.left}" y="{TOP - 10}">{up}</text>'


def _short(decade: int) -> str:
    """1 k, 10 G."""
    value = 10.0**decade
    size, prefix = next(((s, p) for s, p in PREFIXES if value >= s), (1.0, ""))
    return f"{value / size:g}{' ' * bool(prefix)}{prefix}"


def _roof(corners: list[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polyline points="{path}" fill="none" stroke="black" stroke-width="1.5"/>'


def _points(rows: list[Row], axes: Axes, point: Point) -> Iterator[str]:
    """A line from torch to CubePy for each work, whose name browsers show."""
    for row in rows:
        (x, mine), (_, theirs) = (axes.place(*point(row, s)) for s in (row.ours, row.theirs))
        colour = COLOURS[row.model]
        yield f"<g><title>{row.model}, {row.work}: {row.ratio:.2f}x</title>"
        yield f'<path d="M{x:.1f} {theirs:.1f}V{mine:.1f}" stroke="{colour}" opacity="0.5"/>'
        yield f'<circle cx="{x:.1f}" cy="{theirs:.1f}" r="3" fill="white" stroke="{colour}"/>'
        yield f'<circle cx="{x:.1f}" cy="{mine:.1f}" r="3.5" fill="{colour}"/></g>'


def _legend() -> Iterator[str]:
    x = LEFT + 150
    for name, colour in COLOURS.items():
        yield f'<circle cx="{x}" cy="14" r="4" fill="{colour}"/>'
        yield f'<text x="{x + 9}" y="18">{name}</text>'
        x += 110
    yield f'<text x="{x}" y="18">{MEANINGS}</text>'
