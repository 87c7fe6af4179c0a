"""Divisions of a position, nested: it is divided by its innermost extent, the quotient by others.

`i // (h * w)` becomes `i // w // h`, and `i % (h * w) // w` becomes `i // w % h`: what users write
to find the place of a unit in an array. Where the loop over units goes along rows, all but the
place in the row is then the same in all of the loop.

Each part of a position is some of its digits in a mixed radix (Knuth, The Art of Computer
Programming 2, section 4.1): `i // low % (high // low)`, where `low` divides `high`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cubepy.artifact import Extent
from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.ir.types import element_of, i32, i64, index, u32
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
    """A kernel with divisions in a nest, which is right where some values are within limits.

    `limits`: each value, the least that it may be, at least 1, and the most.
    """

    kernel: Kernel
    limits: tuple[tuple[Value, int, int], ...]


_TYPES = (index, i32, u32, i64)


def nest_divisions(kernel: Kernel, shortest: int) -> Nested | None:
    """The kernel with divisions of its units' linear position in a nest; None without any.

    `shortest`: constants below it make no rows.

    What is divided by zero is zero, and users compare positions with extents of other arrays: so
    that extents are above zero is mostly known at the launch alone.
    """
    parts = _Parts(kernel)
    innermost = parts.innermost(shortest)
    if innermost is None:
        return None
    nested = _Nest(parts, innermost).run(kernel)
    return Nested(nested, tuple((v, least, most) for v, (least, most) in parts.assumed.items()))


def wrap_positions(kernel: Kernel, bounds: Mapping[str, Value]) -> Nested | None:
    """The kernel with steps in the place of remainders of positions along axes that were moved.

    `bounds`: what the positions of units along an axis are below. None where there are no such
    remainders.
    """
    parts = _Parts(kernel, bounds)
    if not any(part in parts.bounded for part, *_ in parts.shifted.values()):
        return None
    nested = _Wrap(parts).run(kernel)
    return Nested(nested, tuple((v, least, most) for v, (least, most) in parts.assumed.items()))


class _Parts:
    """The values of a kernel that are digits of a position, and the products that divide them."""

    def __init__(self, kernel: Kernel, bounds: Mapping[str, Value] = MappingProxyType({})) -> None:
        self._bounds = bounds
        self.bounded: dict[Value, Product] = {}
        """Positions along axes, and what they are below."""
        self.digits: dict[Value, Digits] = {}
        self.positions: dict[Value, Value] = {}
        """The position that each is a part of."""
        self.found: dict[Op, Digits] = {}
        """The divisions, and differences that are remainders."""
        self.assumed: dict[Value, tuple[int, int]] = {}
        """Factors of divisors that are not known to be above 0, or of products that may wrap; and
        the least and the most that each may be."""
        self.shifted: dict[Op, tuple[Value, int, Product]] = {}
        """Remainders of a remainder that was moved by a constant, as at periodic boundaries."""
        self._products: dict[Value, Product] = {}
        """What is the same in the whole launch."""
        self._operands: dict[Value, Sequence[Value]] = {}
        """Of products that are not."""
        self._limited: dict[Value, Value] = {}
        self._sums: dict[Value, Op] = {}
        self._constants: dict[Value, int] = {}
        self._bits: dict[Value, int] = {}
        """Of products in integers that wrap: how many their type has."""
        self._is_narrow = kernel.limit < 1 << 31
        self._extents = {p.value for p in kernel.params if isinstance(p.kind, Extent)}
        self._fixed = {p.value for p in kernel.params}
        for param in kernel.params:
            if param.value.type in _TYPES:
                self._products[param.value] = _factor(param.value)
        for op in kernel.body.walk():
            self._note(op)

    def innermost(self, shortest: int) -> Product | None:
        """The shortest extent of a row that others are multiples of; None where there is none."""
        low = {d.low for d in self.found.values()}
        high = {d.high for d in self.found.values() if d.high is not None}
        places = (low | high) - {ONE}
        rows = [p for p in places if p.values or p.number >= shortest]
        for row in rows:
            others = [p for p in places if p != row]
            is_first = not any(row.over(p) for p in others if p in rows)
            if is_first and all(p.over(row) or row.over(p) for p in others):
                gains = self.assumed or self.shifted or any(p.over(row) for p in others)
                return row if gains else None
        return None

    def _note(self, op: Op) -> None:
        if op.row is ops.ABSOLUTE_POS:
            axis = str(op.attrs["axis"])
            if axis == "all":
                self.digits[op.result] = Digits()
                self.positions[op.result] = op.result
            elif axis in self._bounds:
                self._limited[op.result] = self._bounds[axis]
            return
        if len(op.results) != 1 or op.regions:
            return
        product = self._product(op)
        if op.result.type not in _TYPES:
            return
        if op.row in (ops.ADD, ops.SUB):
            self._sums[op.result] = op
        if product is not None:
            self._products[op.result] = product
        elif op.row is ops.MUL:
            self._operands[op.result] = op.operands
        elif op.row in (ops.FLOORDIV, ops.MOD):
            self._divide(op)
        elif op.row is ops.SUB:
            self._subtract(op)
        elif op.row is ops.CAST:
            self._convert(op)

    def _product(self, op: Op) -> Product | None:
        """The product that a value is which all units share."""
        if not is_speculatable(op) or op.row.reads or not self._fixed.issuperset(op.operands):
            return None
        self._fixed.add(op.result)
        if op.row is ops.CONST:
            value = op.attrs["value"]
            if not isinstance(value, int):
                return None
            self._constants[op.result] = value
            return Product(value) if value > 0 else None
        if op.row is ops.MUL or (op.row is ops.CAST and _widens(op)):
            known = [self._products.get(v) for v in op.operands]
            found = ONE
            for product in known:
                if product is None:
                    return None
                found = found.times(product)
            if found.number.bit_length() > element_of(op.result.type).bits - 2:
                return _factor(op.result)  # it wraps, whatever the values are
            self._note_bits(op)
            return found
        return _factor(op.result)

    def _note_bits(self, op: Op) -> None:
        bits = [self._bits[v] for v in op.operands if v in self._bits]
        if op.row is ops.MUL and op.result.type is not index:
            bits.append(element_of(op.result.type).bits)
        if bits:
            self._bits[op.result] = min(bits)

    def _convert(self, op: Op) -> None:
        """A part of a position stays one in another type that holds all positions."""
        (value,) = op.operands
        if value in self.digits and (self._is_narrow or element_of(op.result.type).bits == 64):
            self.digits[op.result] = self.digits[value]
            self.positions[op.result] = self.positions[value]

    def _divide(self, op: Op) -> None:
        value, divisor = op.operands
        digits, product = self.digits.get(value), self._products.get(divisor)
        if product is None:
            return
        if digits is None:
            self._shift(op, product)
            return
        part = digits.quotient(product) if op.row is ops.FLOORDIV else digits.remainder(product)
        if part is None:
            return
        bits = self._bits.get(divisor)
        limit = _limit(product, bits or 64)
        for factor, _ in product.values:
            if bits or not op.attrs.get("nonzero") or factor not in self._extents:
                self._assume(factor, 1, limit)
        self._add(op, value, part)

    def _assume(self, factor: Value, least: int, most: int) -> None:
        most = min(most, (1 << element_of(factor.type).bits - 1) - 1)
        known = self.assumed.get(factor, (least, most))
        self.assumed[factor] = max(known[0], least), min(known[1], most)

    def _shift(self, op: Op, extent: Product) -> None:
        """`(x % n + c) % n`, with any multiple of `n` added: for `c` up to `n`, at most one step
        away."""
        if op.row is not ops.MOD or op.result.type is not index:
            return
        parts: list[Value] = []
        terms, distance = self._terms(op.operands[0])
        for term in terms:
            if term in self.digits or term in self._limited:
                parts.append(term)
            elif self._products.get(term) != extent:
                return
        if len(parts) != 1 or not self._is_below(parts[0], extent):
            return
        if not extent.values:
            distance %= extent.number
            distance -= extent.number if 2 * distance > extent.number else 0
        elif extent.number == 1 and len(extent.values) == 1:
            ((factor, times),) = extent.values
            if times > 1:
                return
            self._assume(factor, max(abs(distance), 1), _limit(extent, 64))
        else:
            return
        self.shifted[op] = parts[0], distance, extent

    def _is_below(self, part: Value, extent: Product) -> bool:
        """Whether a value counts from 0 up to an extent."""
        if part in self.digits:
            return self.digits[part] == Digits(ONE, extent)
        if self._products.get(self._limited[part]) != extent:
            return False
        self.bounded[part] = extent
        return True

    def _terms(self, value: Value) -> tuple[list[Value], int]:
        """What a sum consists of, and the constant in it."""
        if value in self._constants:
            return [], self._constants[value]
        op = self._sums.get(value)
        if op is None or (op.row is ops.SUB and op.operands[1] not in self._constants):
            return [value], 0
        (a, k), (b, n) = (self._terms(v) for v in op.operands)
        return [*a, *b], k - n if op.row is ops.SUB else k + n

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


def _widens(op: Op) -> bool:
    """Whether a conversion of an integer keeps its number."""
    source, target = element_of(op.operands[0].type), element_of(op.result.type)
    return source in _TYPES and target in _TYPES and (target.bits == 64 or source is target)


def _limit(product: Product, bits: int) -> int:
    """What values may be at most, so that their product needs less than so many bits."""
    times = sum(times for _, times in product.values)
    return 1 << max(bits - 2 - product.number.bit_length(), 0) // max(times, 1)


class _Wrap(Rewriter):
    """Writes remainders of what was moved."""

    def __init__(self, parts: _Parts) -> None:
        super().__init__()
        self._parts = parts

    def visit(self, op: Op) -> None:
        shifted = self._parts.shifted.get(op)
        if shifted is None:
            super().visit(op)
        else:
            self.replaced[op.result] = self._moved(op, *shifted)

    def _moved(self, op: Op, part: Value, distance: int, extent: Product) -> Value:
        """A place in a row that many places on, or from the other end of the row."""
        row = self._value(op, extent)
        place = self._emit(op, ops.ADD, self.value(part), self._number(op, distance))
        if distance < 0:
            leaves = self._emit(op, ops.LT, place, self._number(op, 0))
            return self._emit(op, ops.SELECT, leaves, self._emit(op, ops.ADD, place, row), place)
        leaves = self._emit(op, ops.GE, place, row)
        return self._emit(op, ops.SELECT, leaves, self._emit(op, ops.SUB, place, row), place)

    def _number(self, op: Op, number: int) -> Value:
        return self.emit_const(index, number, op.span)

    def _emit(self, op: Op, row: ops.OpDef, *operands: Value) -> Value:
        return self.emit(row, operands, {}, op.span, op.result.name)

    def _value(self, op: Op, product: Product) -> Value:
        """A value that is the product."""
        factors = [self._as_index(op, v) for v, times in product.values for _ in range(times)]
        if product.number != 1 or not factors:
            factors.insert(0, self.emit_const(index, product.number, op.span))
        value = factors[0]
        for factor in factors[1:]:
            value = self._emit(op, ops.MUL, value, factor)
        return value

    def _as_index(self, op: Op, value: Value) -> Value:
        if value.type is index:
            return value
        return self.emit(ops.CAST, (value,), {"type": index}, op.span, value.name)


class _Nest(_Wrap):
    """Writes digits by the quotient and the remainder of one division of the position."""

    def __init__(self, parts: _Parts, innermost: Product) -> None:
        super().__init__(parts)
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
            made = self._written(op, digits)
            if op.result.type is not index:
                made = self.emit(ops.CAST, (made,), {"type": op.result.type}, op.span)
            self.replaced[op.result] = made
        elif self._shifts(op):
            super().visit(op)
        else:
            Rewriter.visit(self, op)

    def _shifts(self, op: Op) -> bool:
        shifted = self._parts.shifted.get(op)
        return shifted is not None and shifted[2] == self._innermost

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
