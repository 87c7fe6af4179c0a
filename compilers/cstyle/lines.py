"""Types of a dialect, and operations on lines: operators where it has them, else helpers."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import fill

from cubepy.compilers.cstyle.dialect import SMALL_TABLE, Dialect
from cubepy.compilers.cstyle.namer import Namer
from cubepy.compilers.cstyle.shared import SHARED
from cubepy.compilers.cstyle.spelling import POSTFIX, UNARY, Expr
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, Type, bool_, element_of

OPERATORS: dict[OpDef, str] = {
    ops.ADD: "+",
    ops.SUB: "-",
    ops.MUL: "*",
    ops.DIV: "/",
    ops.AND: "&",
    ops.OR: "|",
    ops.XOR: "^",
    ops.SHL: "<<",
    ops.SHR: ">>",
    ops.EQ: "==",
    ops.NE: "!=",
    ops.LT: "<",
    ops.LE: "<=",
    ops.GT: ">",
    ops.GE: ">=",
}
"""Those that helpers may overload."""
WORD = re.compile(r"[A-Za-z_]\w*")
ByLane = Callable[[list[Expr]], Expr]


class Lines:
    """Names of types, and the prelude: declarations of lines and helper functions as used."""

    def __init__(self, dialect: Dialect, namer: Namer) -> None:
        self.dialect = dialect
        self._namer = namer
        self._tables: dict[tuple[DType, str], str] = {}
        self._declared: dict[str, str] = {}

    def prelude(self) -> list[str]:
        """What must stand before the kernel, in order of first use."""
        return [line for text in self._declared.values() for line in (*text.split("\n"), "")]

    def declare(self, name: str, text: str) -> None:
        """Put a declaration into the prelude once."""
        self._declared.setdefault(name, text)

    def table(self, t: DType, entries: str, count: int) -> str:
        """A constant array of the prelude, made once for equal entries; gives its name."""
        d, key = self.dialect, (t, entries)
        if key not in self._tables:
            self._tables[key] = name = self._namer.fresh("table")
            is_large = count * t.itemsize > SMALL_TABLE and d.large_table
            head = (d.large_table if is_large else d.table).format(
                type=self.scalar(t), name=name, count=count
            )
            text = f"{head} = {{{entries}}};"
            self.declare(name, fill(text, 100, break_long_words=False, break_on_hyphens=False))
        return self._tables[key]

    def use(self, name: str) -> str:
        """A helper of the dialect, with those that it needs; gives its name."""
        if name not in self._declared:
            helper = self.dialect.helpers[name]
            self._use_all(helper.text, name)
            self._declared[name] = helper.text
        return name

    def _use_all(self, text: str, but: str) -> None:
        """The helpers and types that a helper's text mentions."""
        for word in dict.fromkeys(WORD.findall(text)):
            for found in (f"type {word}", word):
                if found in self.dialect.helpers and found != but:
                    self.use(found)

    def use_in(self, text: str) -> None:
        """Put the helpers that a text calls into the prelude."""
        self._use_all(text, "")

    # Types

    def scalar(self, dtype: DType) -> str:
        """The name of a scalar type; small floats may need a declaration."""
        name = self.dialect.scalars[dtype]
        if f"type {name}" in self.dialect.helpers:
            self.use(f"type {name}")
        return name

    def type(self, t: Type) -> str:
        """The name of a scalar or line."""
        if not isinstance(t, Line):
            return self.scalar(element_of(t))
        native = self.dialect.vectors.get((t.element, t.width))
        scalar = self.scalar(t.element)
        if native is not None:
            if f"type {native}" in self.dialect.helpers:
                self.use(f"type {native}")
            return native
        name = tag(t)
        fields = {"name": name, "type": scalar, "width": t.width, "align": alignment(t)}
        self.declare(name, self.dialect.struct.format(**fields))
        return name

    def is_native(self, t: Type) -> bool:
        """Whether a line is a vector of the dialect."""
        return isinstance(t, Line) and (t.element, t.width) in self.dialect.vectors

    def lane(self, value: str, t: Type, lane: int | str) -> Expr:
        """A lane of a name that holds a line; a lane that is a text indexes an array."""
        if not self.is_native(t):
            return Expr(f"{value}.lane[{lane}]", POSTFIX)
        assert isinstance(lane, int)
        return Expr(f"{value}.{self.dialect.lanes[lane]}", POSTFIX)

    def build(self, t: Line, lanes: list[Expr]) -> Expr:
        """A line of its lanes."""
        texts = [self._exact(t.element, lane) for lane in lanes]
        template = self.dialect.vector_build if self.is_native(t) else self.dialect.struct_build
        return Expr(template.format(type=self.type(t), lanes=", ".join(texts)), POSTFIX)

    def _exact(self, element: DType, lane: Expr) -> str:
        """A lane in its own type: small integers are computed as `int`; braces do not narrow."""
        is_small = element.is_integer and element.bits < 32
        cast = f"({self.scalar(element)})"
        if not is_small or lane.rank == POSTFIX or _is_cast(lane, cast):
            return lane.whole
        return f"{cast}{lane.within(UNARY)}"

    def splat(self, t: Line, value: Expr) -> Expr:
        """A scalar in all lanes."""
        d, name = self.dialect, self.type(t)
        if self.is_native(t) and d.vector_splat:
            if d.splat_helper:
                fields = self._splat_fields(t, name)
                self.declare(f"splat {name}", d.splat_helper.format(**fields))
            return d.vector_splat.fill([value], type=name)
        helper = f"splat_{tag(t)}"
        body = self.build(t, [Expr("value")] * t.width).whole
        head = f"{d.function}{name} {helper}({self.scalar(t.element)} value)"
        self.declare(helper, f"{head} {{\n    return {body};\n}}")
        return Expr(f"{helper}({value.whole})", POSTFIX)

    def _splat_fields(self, t: Line, name: str) -> dict[str, str]:
        lanes = ", ".join(["value"] * t.width)
        scalar, function = self.scalar(t.element), self.dialect.function
        return {"type": name, "scalar": scalar, "lanes": lanes, "function": function}

    # Operations by lane

    def apply(
        self, row: OpDef, t: Line, types: list[Type], operands: list[Expr], by_lane: ByLane
    ) -> Expr:
        """An operation on each lane: an operator, or a call of a helper that is made here.

        `by_lane` gives the expression for one lane; scalars among the operands serve every lane.
        """
        operator = OPERATORS.get(row)
        lines_only = all(isinstance(x, Line) for x in types)
        if operator is not None and lines_only and self._has_operator(row, types[0]):
            return SHARED[row, None].fill(operands)
        names = ["a", "b", "c", "d"][: len(types)]
        params = ", ".join(f"{self.type(x)} {n}" for x, n in zip(types, names, strict=True))
        lanes = [
            by_lane([self._operand(n, x, k) for n, x in zip(names, types, strict=True)])
            for k in range(t.width)
        ]
        overloads = operator is not None and lines_only and self._may_overload(types[0])
        name = f"operator{operator}" if overloads else helper_name(row, t, types)
        head = f"{self.dialect.function}{self.type(t)} {name}({params})"
        body = self.build(t, lanes).whole
        self.declare(f"{name} {params}", f"{head} {{\n    return {body};\n}}")
        if overloads:
            return SHARED[row, None].fill(operands)
        return Expr(f"{name}({', '.join(o.whole for o in operands)})", POSTFIX)

    def _may_overload(self, t: Type) -> bool:
        where = self.dialect.overloads
        return where == "all" or (where == "structs" and not self.is_native(t))

    def _operand(self, name: str, t: Type, lane: int) -> Expr:
        return self.lane(name, t, lane) if isinstance(t, Line) else Expr(name)

    def _has_operator(self, row: OpDef, t: Type) -> bool:
        rows = self.dialect.vector_rows.get(element_of(t).kind, frozenset())
        return self.is_native(t) and row in rows


def _is_cast(expr: Expr, cast: str) -> bool:
    return expr.rank == UNARY and expr.whole.startswith(cast)


def helper_name(row: OpDef, t: Line, types: list[Type]) -> str:
    """A name for an operation on lines: `fma_f32x4`; conversions name both types."""
    parts = dict.fromkeys(tag(x) for x in (t, *types))
    if row is ops.SELECT:
        parts = dict.fromkeys((tag(t), "mask" if isinstance(types[0], Line) else "all"))
    return "_".join((row.name, *parts))


def tag(t: Type) -> str:
    """A short name of a type: f32x4, boolx4, f32."""
    dtype = element_of(t)
    name = "bool" if dtype is bool_ else dtype.name
    return f"{name}x{t.width}" if isinstance(t, Line) else name


def alignment(t: Line) -> int:
    """What a line in memory is aligned to: the power of two in its size, at most 16."""
    size = t.element.itemsize * t.width
    return min(size & -size, 16)
