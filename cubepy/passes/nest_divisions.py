"""Divisions of a position, nested: it is divided by its innermost extent, the quotient by others.

`i // (h * w)` becomes `i // w // h`, and `i % (h * w) // w` becomes `i // w % h`: what users write
to find the place of a unit in an array. Where the loop over units goes along rows, all but the
place in the row is then the same in all of the loop.

Each part of a position is some of its digits in a mixed radix (Knuth, The Art of Computer
Programming 2, section 4.1): `i // low % (high // low)`, where `low` divides `high`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cubepy.artifact import Extent
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """A number times values, each as often as it is a factor."""

    number: int = 1
    values: frozenset[tuple[Value, int]] = frozenset()

    def times(self, other: Product) -> Product:
        """The product of both."""
        return Product(
            self.number * other.number,
            _items(Counter(dict(self.values)) + Counter(dict(other.values))),
        )

    def over(self, other: Product) -> Product | None:
        """What times `other` gives this; None where that is not known."""
        mine, its = Counter(dict(self.values)), Counter(dict(other.values))
        if self.number % other.number or not its <= mine:
            return None
        return Product(self.number // other.number, _items(mine - its))


def _items(values: Counter[Value]) -> frozenset[tuple[Value, int]]:
    return frozenset(values.items())


def _factor(value: Value) -> Product:
    return Product(1, frozenset({(value, 1)}))


ONE = Product()
SHORTEST = 4
"""A constant divisor below this makes rows that are too short to gain anything."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Those of a position from `low` up to `high`, or all from there on."""

    low: Product = ONE
    high: Product | None = None

    def quotient(self, divisor: Product) -> Digits | None:
        """These digits without the last ones, which `divisor` counts."""
        low = self.low.times(divisor)
        return Digits(low, self.high) if self._has(low) else None

    def remainder(self, divisor: Product) -> Digits | None:
        """The last of these digits, which `divisor` counts."""
        high = self.low.times(divisor)
        return Digits(self.low, high) if self._has(high) else None

    def _has(self, place: Product) -> bool:
        return self.high is None or self.high.over(place) is not None


@dataclass(frozen=True, slots=True)
class Nested:
    """A kernel with divisions in a nest, which is right where all of `positive` are above 0."""

    kernel: Kernel
    positive: tuple[Value, ...]


def nest_divisions(kernel: Kernel) -> Nested | None:
    """The kernel with divisions of its units' linear position in a nest; None without any.

    What is divided by zero is zero, and users compare positions with extents of other arrays: so
    that extents are above zero is mostly known at the launch alone.
    """
    rows = {op.row for op in kernel.body.walk()}
    if ops.ABSOLUTE_POS not in rows or rows.isdisjoint((ops.FLOORDIV, ops.MOD)):
        return None
    parts = _Parts(kernel)
    innermost = parts.innermost()
    if innermost is None:
        return None
    return Nested(_Nest(parts, innermost).run(kernel), tuple(parts.assumed))


class _Parts:
    """The values of a kernel that are digits of a position, and the products that divide them."""

    def __init__(self, kernel: Kernel) -> None:
        self.digits: dict[Value, Digits] = {}
        self.positions: dict[Value, Value] = {}
        """The position that each is a part of."""
        self.found: dict[Op, Digits] = {}
        """The divisions, and differences that are remainders."""
        self.assumed: dict[Value, None] = {}
        """Factors of divisors that are not known to be above 0."""
        self._products: dict[Value, Product] = {}
        """What is the same in the whole launch."""
        self._operands: dict[Value, Sequence[Value]] = {}
        """Of products that are not."""
        self._extents = {p.value for p in kernel.params if isinstance(p.kind, Extent)}
        self._fixed = {p.value for p in kernel.params}
        for param in kernel.params:
            if param.value.type is index:
                self._products[param.value] = _factor(param.value)
        for op in kernel.body.walk():
            self._note(op)

    def innermost(self) -> Product | None:
        """The shortest extent of a row that others are multiples of; None where there is none."""
        low = {d.low for d in self.found.values()}
        high = {d.high for d in self.found.values() if d.high is not None}
        places = (low | high) - {ONE}
        rows = [p for p in places if p.values or p.number >= SHORTEST]
        for row in rows:
            others = [p for p in places if p != row]
            is_first = not any(row.over(p) for p in others if p in rows)
            if is_first and all(p.over(row) or row.over(p) for p in others):
                gains = self.assumed or any(p.over(row) for p in others)
                return row if gains else None
        return None

    def _note(self, op: Op) -> None:
        if op.row is ops.ABSOLUTE_POS:
            if op.attrs["axis"] == "all":
                self.digits[op.result] = Digits()
                self.positions[op.result] = op.result
            return
        if not op.results or op.regions or len(op.results) > 1:
            return
        product = self._product(op)
        if op.result.type is not index:
            return
        if product is not None:
            self._products[op.result] = product
        elif op.row is ops.MUL:
            self._operands[op.result] = op.operands
        elif op.row in (ops.FLOORDIV, ops.MOD):
            self._divide(op)
        elif op.row is ops.SUB:
            self._subtract(op)

    def _product(self, op: Op) -> Product | None:
        """The product that a value is which all units share."""
        if not is_speculatable(op) or not self._fixed.issuperset(op.operands) or op.row.reads:
            return None
        self._fixed.add(op.result)
        if op.row is ops.CONST:
            value = op.attrs["value"]
            return Product(value) if isinstance(value, int) and value > 0 else None
        if op.row is ops.MUL:
            a, b = (self._products.get(v) for v in op.operands)
            return a.times(b) if a is not None and b is not None else None
        return _factor(op.result)

    def _divide(self, op: Op) -> None:
        value, divisor = op.operands
        digits, product = self.digits.get(value), self._products.get(divisor)
        if digits is None or product is None:
            return
        part = digits.quotient(product) if op.row is ops.FLOORDIV else digits.remainder(product)
        if part is not None:
            is_known = op.attrs.get("nonzero")
            for factor, _ in product.values:
                if not is_known or factor not in self._extents:
                    self.assumed[factor] = None
            self._add(op, value, part)

    def _subtract(self, op: Op) -> None:
        """`x - x // n * n` is `x % n`."""
        value, multiple = op.operands
        digits, factors = self.digits.get(value), self._factors(multiple)
        quotients = [f for f in factors if f in self.digits]
        if digits is None or len(quotients) != 1:
            return
        product = ONE
        for factor in factors:
            known = self._products.get(factor)
            if factor is not quotients[0]:
                if known is None:
                    return
                product = product.times(known)
        (quotient,) = quotients
        same = self.positions[quotient] is self.positions[value]
        if same and self.digits[quotient] == digits.quotient(product):
            part = digits.remainder(product)
            if part is not None:
                self._add(op, value, part)

    def _factors(self, value: Value) -> list[Value]:
        operands = self._operands.get(value)
        return [value] if operands is None else [f for v in operands for f in self._factors(v)]

    def _add(self, op: Op, value: Value, part: Digits) -> None:
        self.digits[op.result] = self.found[op] = part
        self.positions[op.result] = self.positions[value]


class _Nest(Rewriter):
    """Writes digits by the quotient and the remainder of one division of the position."""

    def __init__(self, parts: _Parts, innermost: Product) -> None:
        super().__init__()
        self._parts = parts
        self._innermost = innermost
        self._divided: dict[Value, tuple[Value, Value, Value]] = {}
        """Of a position: the divisor, the quotient and the remainder, in the open regions."""

    def region(self, region: Region) -> Region:
        kept = dict(self._divided)
        found = super().region(region)
        self._divided = kept
        return found

    def visit(self, op: Op) -> None:
        digits = self._parts.found.get(op)
        if digits is not None and self._is_above(digits.low) and self._is_above(digits.high):
            self.replaced[op.result] = self._written(op, digits)
        else:
            super().visit(op)

    def _is_above(self, place: Product | None) -> bool:
        """Whether rows end at a place; others are within a row."""
        return place in (None, ONE) or place.over(self._innermost) is not None

    def _written(self, op: Op, digits: Digits) -> Value:
        position = self._parts.positions[op.result]
        if position not in self._divided:
            divisor = self._value(op, self._innermost)
            rows, by = (ops.FLOORDIV, ops.MOD), (divisor, self._innermost)
            quotient, remainder = (self._divide(op, row, position, *by) for row in rows)
            self._divided[position] = (divisor, quotient, remainder)
        divisor, quotient, remainder = self._divided[position]
        if digits.low != ONE:
            return self._upper(op, quotient, digits.low, digits.high)
        assert digits.high is not None
        if digits.high == self._innermost:
            return remainder
        row = self._upper(op, quotient, self._innermost, digits.high)
        start = self._emit(op, ops.MUL, row, divisor)
        return self._emit(op, ops.ADD, start, remainder)

    def _upper(self, op: Op, quotient: Value, low: Product, high: Product | None) -> Value:
        """Digits above the innermost."""
        skipped = low.over(self._innermost)
        count = None if high is None else high.over(low)
        assert skipped is not None
        if skipped != ONE:
            quotient = self._divide(op, ops.FLOORDIV, quotient, self._value(op, skipped), skipped)
        if count is None:
            return quotient
        return self._divide(op, ops.MOD, quotient, self._value(op, count), count)

    def _divide(
        self, op: Op, row: ops.OpDef, value: Value, divisor: Value, product: Product
    ) -> Value:
        known = ("nonnegative", "nonzero") if product.values else ("nonnegative",)
        attrs: dict[str, Attr] = dict.fromkeys(known, True)
        return self.emit(row, (value, divisor), attrs, op.span, op.result.name)

    def _emit(self, op: Op, row: ops.OpDef, *operands: Value) -> Value:
        return self.emit(row, operands, {}, op.span, op.result.name)

    def _value(self, op: Op, product: Product) -> Value:
        """A value that is the product."""
        factors = [v for v, times in product.values for _ in range(times)]
        if product.number != 1 or not factors:
            factors.insert(0, self.emit_const(index, product.number, op.span))
        value = factors[0]
        for factor in factors[1:]:
            value = self._emit(op, ops.MUL, value, factor)
        return value
