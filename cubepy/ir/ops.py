"""The op table: the one place where operations are defined.

Builder, printer, parser, verifier, folding, the passes, the backends' completeness tests and the
documentation page are driven by these rows. No row encodes an algorithm.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from cubepy.ir import amx, cuda, dot, evaluate, metal
from cubepy.ir import meaning as m
from cubepy.ir import numbers as n
from cubepy.ir import opdef as rule
from cubepy.ir.opdef import MEMORY, Group, OpDef, Resource, Rule, Scan, Uniformity

TABLE: dict[str, OpDef] = {}


def _op(name: str, typing: Rule, doc: str, surface: str, **fields: Any) -> OpDef:
    row = OpDef(name, doc, typing, surface, **fields)
    TABLE[name] = row
    return row


def _same(
    name: str,
    class_name: str,
    count: int,
    doc: str,
    meaning: m.Meaning,
    surface: str = "",
    **fields: Any,
) -> OpDef:
    """A function of lanes, `count` operands and a result of one type; `doc` or the meaning's."""
    written = surface or f"cp.{name}({', '.join('abc'[:count])})"
    text = doc or meaning.__doc__ or ""
    return _op(name, rule.same(class_name, count), text, written, meaning=meaning, **fields)


def _elementary(name: str, ulp: float, meaning: m.Meaning, count: int = 1) -> OpDef:
    doc = (
        f"{name}, within {ulp:g} ULP in f32 and f64; expanded where a target has no such function."
    )
    return _same(name, "float", count, doc, meaning, exact=False, ulp=ulp)


# Constants and conversions
CONST = _op(
    "const",
    rule.literal,
    "The value of an attribute.",
    "1.5",
    evaluation=evaluate.const,
    attrs=("type", "value"),
    uniformity=Uniformity.ALWAYS,
)
CAST = _op(
    "cast",
    rule.casting,
    "Conversion per lane: integers wrap, floats round to nearest even, "
    "float to integer truncates, saturates and takes NaN to 0, to bool tests for nonzero. "
    "`nonnegative`: an integer that is not below 0.",
    "cp.f32(a)",
    evaluation=evaluate.cast,
    attrs=("type", "nonnegative"),
)
BITCAST = _op(
    "bitcast",
    rule.bit_casting,
    "The same bits as another type of the same size.",
    "cp.bitcast(a, dtype)",
    evaluation=evaluate.bitcast,
    attrs=("type",),
)

# Arithmetic: integers wrap; floats are IEEE 754, rounded to nearest even, denormals kept.
# -0.0 is the identity of a sum: -0.0 + 0.0 is 0.0, so x + 0.0 is not x. Division by zero is defined
# as zero, which therefore absorbs.
_integer_one, _integer_zero = n.integers(n.one), n.integers(n.zero)
# Of sums, products and quotients of floats may be known: `strict`, that they are computed as they
# stand under `fast_math` too
_float: dict[str, Any] = {"attrs": ("strict",)}
_sum: dict[str, Any] = {"is_commutative": True, "identity": n.negative_zero, **_float}
ADD = _same("add", "number", 2, "Sum.", m.add, "a + b", **_sum)
SUB = _same("sub", "number", 2, "Difference.", m.sub, "a - b", identity=n.zero, **_float)
MUL = _same(
    "mul",
    "number",
    2,
    "Product.",
    m.mul,
    "a * b",
    is_commutative=True,
    identity=n.one,
    absorbing=_integer_zero,
    **_float,
)
FMA = _same("fma", "float", 3, "a * b + c, rounded once.", m.fma)
DIV = _same(
    "div", "float", 2, "Quotient, correctly rounded.", m.div, "a / b", identity=n.one, **_float
)
# Of divisions may be known: `nonnegative`, that no operand is below 0, and `nonzero`, that the
# divisor is not 0 where the operation stands, and there alone unless so `everywhere`. `in_row`:
# neighbouring units that become lanes have one quotient
_remainder: dict[str, Any] = {
    "absorbing": _integer_zero,
    "attrs": ("nonnegative", "nonzero", "everywhere", "in_row"),
}
_quotient: dict[str, Any] = {"identity": _integer_one, **_remainder}
FLOORDIV = _same("floordiv", "number", 2, "", m.floordiv, "a // b", **_quotient)
MOD = _same("mod", "number", 2, "", m.mod, "a % b", **_remainder)
DIV_TRUNC = _same("div_trunc", "integer", 2, "", m.div_trunc, **_quotient)
REM_TRUNC = _same("rem_trunc", "integer", 2, "", m.rem_trunc, **_remainder)
MUL_HI = _same("mul_hi", "integer", 2, "", m.mul_hi, is_commutative=True, absorbing=_integer_zero)
NEG = _same("neg", "number", 1, "", m.neg, "-a")
ABS = _same("abs", "number", 1, "", m.absolute, "abs(a)")
MIN = _same(
    "min",
    "number",
    2,
    "",
    m.minimum,
    "min(a, b)",
    is_commutative=True,
    identity=n.highest,
    absorbing=n.integers(n.lowest),
)
MAX = _same(
    "max",
    "number",
    2,
    "",
    m.maximum,
    "max(a, b)",
    is_commutative=True,
    identity=n.lowest,
    absorbing=n.integers(n.highest),
)
COPYSIGN = _same("copysign", "float", 2, "", m.copysign)
SQRT = _same("sqrt", "float", 1, "", m.sqrt)
FLOOR = _same("floor", "float", 1, "Largest integral value not above a.", m.floor)
CEIL = _same("ceil", "float", 1, "Smallest integral value not below a.", m.ceil)
TRUNC = _same("trunc", "float", 1, "Integral part.", m.trunc)
RINT = _same("rint", "float", 1, "Nearest integral value, ties to even.", m.rint)

# Bits


def _bitwise(name: str, doc: str, meaning: m.Meaning, surface: str, **fields: Any) -> OpDef:
    text = f"Bitwise (on bools: logical) {doc}."
    return _same(name, "bits", 2, text, meaning, surface, is_commutative=True, **fields)


AND = _bitwise("and", "and", m.bit_and, "a & b", identity=n.all_bits, absorbing=_integer_zero)
OR = _bitwise("or", "or", m.bit_or, "a | b", identity=n.zero, absorbing=n.all_bits)
XOR = _bitwise("xor", "exclusive or", m.bit_xor, "a ^ b", identity=n.zero)
NOT = _same("not", "bits", 1, "", m.bit_not, "~a")
SHL = _same("shl", "integer", 2, "", m.shl, "a << b", identity=n.zero)
SHR = _same("shr", "integer", 2, "", m.shr, "a >> b", identity=n.zero)
POPCOUNT = _same("popcount", "integer", 1, "", m.popcount)
CLZ = _same("clz", "integer", 1, "", m.count_leading_zeros)
CTZ = _same("ctz", "integer", 1, "", m.count_trailing_zeros)

# Comparisons and choice


def _comparison(name: str, doc: str, function: Callable[..., bool], surface: str) -> OpDef:
    meaning, commutes = m.compare(function), function in (operator.eq, operator.ne)
    return _op(name, rule.comparison, doc, surface, meaning=meaning, is_commutative=commutes)


EQ = _comparison("eq", "Equal; false with NaN.", operator.eq, "a == b")
NE = _comparison("ne", "Not equal; true with NaN.", operator.ne, "a != b")
LT = _comparison("lt", "Less; false with NaN.", operator.lt, "a < b")
LE = _comparison("le", "Less or equal; false with NaN.", operator.le, "a <= b")
GT = _comparison("gt", "Greater; false with NaN.", operator.gt, "a > b")
GE = _comparison("ge", "Greater or equal; false with NaN.", operator.ge, "a >= b")
SELECT = _op(
    "select",
    rule.selection,
    "a where the mask is true, else b; both are evaluated.",
    "cp.where(mask, a, b)",
    evaluation=evaluate.select,
)

# Elementary functions: bounds are those of the OpenCL full profile
_f = m.elementary
EXP = _elementary("exp", 3, _f(math.exp))
EXP2 = _elementary("exp2", 3, _f(math.exp2))
EXP10 = _elementary("exp10", 3, _f(m.exp10))
EXPM1 = _elementary("expm1", 3, _f(math.expm1))
LOG = _elementary("log", 3, _f(m.log))
LOG2 = _elementary("log2", 3, _f(m.log2))
LOG10 = _elementary("log10", 3, _f(m.log10))
LOG1P = _elementary("log1p", 2, _f(m.log1p))
SIN = _elementary("sin", 4, _f(math.sin))
COS = _elementary("cos", 4, _f(math.cos))
TAN = _elementary("tan", 5, _f(math.tan))
ASIN = _elementary("asin", 4, _f(math.asin))
ACOS = _elementary("acos", 4, _f(math.acos))
ATAN = _elementary("atan", 5, _f(math.atan))
ATAN2 = _elementary("atan2", 6, _f(math.atan2), 2)
SINH = _elementary("sinh", 4, _f(m.sinh))
COSH = _elementary("cosh", 4, _f(math.cosh))
TANH = _elementary("tanh", 5, _f(math.tanh))
ASINH = _elementary("asinh", 4, _f(math.asinh))
ACOSH = _elementary("acosh", 4, _f(math.acosh))
ATANH = _elementary("atanh", 5, _f(m.atanh))
ERF = _elementary("erf", 16, _f(math.erf))
ERFC = _elementary("erfc", 16, _f(math.erfc))
POW = _elementary("pow", 16, _f(m.power), 2)
RSQRT = _elementary("rsqrt", 2, _f(m.rsqrt))
CBRT = _elementary("cbrt", 2, _f(m.cube_root))
HYPOT = _elementary("hypot", 4, _f(math.hypot), 2)
SIGMOID = _elementary("sigmoid", 4, _f(m.sigmoid))

# Constant tables. Known may be `inside`: that the index lies inside the table where the operation
# stands, and there alone.
LOOKUP = _op(
    "lookup",
    rule.looking_up,
    "The number of a constant table at an index that counts from 0; of an index below 0 the first "
    "one, of one beyond the end the last.",
    "TABLE[i]",
    evaluation=evaluate.lookup,
    attrs=("type", "table", "inside"),
)

# Lines
SPLAT = _op(
    "splat",
    rule.splatting,
    "A scalar repeated in all lanes.",
    "cp.Line[dtype, lanes](a)",
    evaluation=evaluate.splat,
    attrs=("lanes",),
)
EXTRACT = _op(
    "extract",
    rule.extracting,
    "One lane of a line; an index operand instead of the "
    "attribute counts from 0 and must be in range.",
    "v[k]",
    evaluation=evaluate.extract,
    attrs=("lane",),
    needs="lane",
)
INSERT = _op(
    "insert",
    rule.inserting,
    "A line with one lane replaced.",
    "cp.concat(a, b)",
    evaluation=evaluate.insert,
    attrs=("lane",),
)
SHUFFLE = _op(
    "shuffle",
    rule.shuffling,
    "Lanes chosen from the concatenation of two lines.",
    "v[::2]",
    evaluation=evaluate.shuffle,
    attrs=("lanes",),
)
LANE_MASK = _op(
    "lane_mask",
    rule.masking,
    "True in lanes k with first <= k < end.",
    "x.lane_mask(index)",
    evaluation=evaluate.lane_mask,
    attrs=("lanes",),
)

DOT = _op(
    "dot",
    dot.dotting,
    "To each lane of c the products of four neighbouring lanes of a and b, as exact integers; the "
    "sum wraps. Of bf16, the products of two: first the odd lane's, then the even one's is added "
    "in a step that rounds once to f32; numbers below 2**-126 may count as 0.",
    "cp.dot(a, b, c)",
    evaluation=dot.dot,
)

REDUCTIONS: list[OpDef] = []
"""Rows that combine the lanes of a line by their `step`."""


def _reduction(step: OpDef, class_name: str, doc: str, *surface: str) -> OpDef:
    order = "halves of the lanes are combined until one is left; an odd lane waits behind them"
    assert step.meaning is not None
    row = _op(
        f"reduce_{step.name}",
        rule.reducing(class_name),
        f"{doc} Order: {order}.",
        " or ".join(surface),
        evaluation=evaluate.reduction(step.meaning),
        step=step,
    )
    REDUCTIONS.append(row)
    return row


REDUCE_ADD = _reduction(ADD, "number", "Sum of the lanes.", "v.sum()")
REDUCE_MUL = _reduction(MUL, "number", "Product of the lanes.", "v.prod()")
REDUCE_MIN = _reduction(MIN, "number", "Minimum of the lanes; NaN propagates.", "v.min()")
REDUCE_MAX = _reduction(MAX, "number", "Maximum of the lanes; NaN propagates.", "v.max()")
REDUCE_AND = _reduction(AND, "bits", "Bitwise (on bools: logical) and of the lanes.", "v.all()")
REDUCE_OR = _reduction(OR, "bits", "Bitwise (on bools: logical) or of the lanes.", "v.any()")

# Memory: offsets count elements
_DATA = "what memory holds is known on the device alone"
ALLOC = _op(
    "alloc",
    rule.allocating,
    "Memory of the cube (shared) or of the unit (local), uninitialised.",
    "cp.shared(shape, dtype), cp.local(shape, dtype)",
    unknown=_DATA,
    allocates=True,
    uniformity=Uniformity.ALWAYS,
    attrs=("type", "size", "space"),
)
LOAD = _op(
    "load",
    rule.loading,
    "Reads a scalar or consecutive elements as a line; with a mask, "
    "lanes that are off are not accessed and give the fill.",
    "x[i]",
    unknown=_DATA,
    reads=MEMORY,
    attrs=("type", "align", "hint"),
)
STORE = _op(
    "store",
    rule.storing,
    "Writes a scalar or the lanes of a line; with a mask, lanes that are off are not accessed.",
    "x[i] = v",
    unknown=_DATA,
    writes=MEMORY,
    attrs=("align", "hint"),
)
GATHER = _op(
    "gather",
    rule.gathering,
    "Reads lane k from the offset plus the k-th distance; lanes that the mask has off are not "
    "accessed and give the fill.",
    "made where units become lanes",
    unknown=_DATA,
    reads=MEMORY,
)
SCATTER = _op(
    "scatter",
    rule.scattering,
    "Writes lane k to the offset plus the k-th distance, the last lane last; lanes that the mask "
    "has off are not accessed.",
    "made where units become lanes",
    unknown=_DATA,
    writes=MEMORY,
)
PREFETCH = _op(
    "prefetch",
    rule.addressing,
    "A hint that the address will be read soon; any address is legal.",
    "cp.prefetch(x, index)",
    unknown="it has no result",
    writes=frozenset((Resource.MACHINE,)),
    attrs=("level",),
)
MISALIGNMENT = _op(
    "misalignment",
    rule.aligning,
    "How many elements the address lies behind a multiple of `bytes`.",
    "cp.misalignment(x, index, bytes)",
    unknown="addresses are known on the device alone",
    attrs=("bytes",),
)

ATOMICS: list[OpDef] = []
"""Operations on one element that no other unit can come between; those with a `step` store
`step(old, value)`. A read counts as a write too: the next one may give another value.
"""


def _atomic(name: str, doc: str, values: str = "value", step: OpDef | None = None) -> OpDef:
    operands = ", ".join(filter(None, ("x", "index", values)))
    count = len(values.split(", ")) if values else 0
    row = _op(
        f"atomic_{name}",
        rule.updating(count, step),
        doc + " Relaxed; gives the old value.",
        f"cp.atomic.{_PYTHON_NAMES.get(name, name)}({operands})",
        unknown=_DATA,
        reads=MEMORY,
        writes=MEMORY,
        uniformity=Uniformity.NEVER,
        step=step,
    )
    ATOMICS.append(row)
    return row


_PYTHON_NAMES = {"and": "and_", "or": "or_"}
ATOMIC_ADD = _atomic("add", "Adds.", step=ADD)
ATOMIC_MUL = _atomic("mul", "Multiplies.", step=MUL)
ATOMIC_MIN = _atomic("min", "Minimum.", step=MIN)
ATOMIC_MAX = _atomic("max", "Maximum.", step=MAX)
ATOMIC_AND = _atomic("and", "Bitwise and.", step=AND)
ATOMIC_OR = _atomic("or", "Bitwise or.", step=OR)
ATOMIC_XOR = _atomic("xor", "Bitwise exclusive or.", step=XOR)
ATOMIC_EXCHANGE = _atomic("exchange", "Replaces.")
ATOMIC_CAS = _atomic(
    "cas", "Replaces by the second value where the first is found.", "expected, value"
)
ATOMIC_LOAD = _atomic("load", "Reads.", "")

# Positions


def _position(name: str, doc: str, uniformity: Uniformity) -> OpDef:
    return _op(
        name,
        rule.positioning,
        doc,
        f"cp.{name.upper()}, cp.{name.upper()}_X, ...",
        unknown="it differs from unit to unit, or from launch to launch",
        uniformity=uniformity,
        attrs=("axis", "type"),
    )


UNIT_POS = _position("unit_pos", "Position of the unit in its cube.", Uniformity.NEVER)
CUBE_POS = _position("cube_pos", "Position of the cube in the grid.", Uniformity.ALWAYS)
CUBE_COUNT = _position("cube_count", "Cubes in the grid.", Uniformity.ALWAYS)
ABSOLUTE_POS = _position(
    "absolute_pos",
    "Position of the unit in the whole launch; "
    "`all` is cube_pos * cube_dim + unit_pos, each over all axes.",
    Uniformity.NEVER,
)

# Synchronisation: barriers and fences order accesses, so that they count as both kinds
_ORDERED = frozenset((Resource.GLOBAL, Resource.SHARED))


def _sync(name: str, doc: str, group: Group | None, ordered: frozenset[Resource]) -> OpDef:
    return _op(
        name,
        rule.nothing,
        doc,
        f"cp.{name}()",
        unknown="it has no result",
        reads=ordered,
        writes=ordered,
        convergent=group,
    )


SYNC_CUBE = _sync(
    "sync_cube",
    "All units of the cube arrive before any goes on; their "
    "accesses to shared and global memory are ordered.",
    Group.CUBE,
    _ORDERED,
)
SYNC_PLANE = _sync("sync_plane", "As sync_cube, for the plane.", Group.PLANE, _ORDERED)
SYNC_UNITS = _op(
    "sync_units",
    rule.synchronising,
    "`count` units of the cube, in whole planes, arrive at barrier number `barrier` before any "
    "goes on; their accesses to shared and global memory are ordered. Units that returned do not "
    "arrive.",
    "cp.sync_units(barrier, count)",
    unknown="it has no result",
    reads=_ORDERED,
    writes=_ORDERED,
    convergent=Group.PLANE,
    attrs=("barrier", "count"),
)
SYNC_STORAGE = _sync(
    "sync_storage",
    "Orders the unit's accesses to global memory.",
    None,
    frozenset((Resource.GLOBAL,)),
)

# Planes: all units of a plane take part, those that returned give the identity. Reductions combine
# lane k with lane k xor d for d = plane_dim / 2, ..., 2, 1; scans go from lane 0 upwards. They have
# no effect besides their results.
PLANE_ROWS: list[OpDef] = []
"""Plane operations: those with a `step` are reductions, or scans; votes, ballots and shuffles."""


def _plane(
    name: str, typing: Rule, doc: str, operands: str, *, uniform: bool = False, **fields: Any
) -> OpDef:
    row = _op(
        f"plane_{name}",
        typing,
        doc,
        f"cp.plane_{name}({operands})",
        unknown="it depends on the other units of the plane",
        convergent=Group.PLANE,
        uniformity=Uniformity.PLANE if uniform else Uniformity.NEVER,
        **fields,
    )
    PLANE_ROWS.append(row)
    return row


def _plane_reduction(name: str, step: OpDef, doc: str) -> OpDef:
    fields: dict[str, Any] = {"identity": n.zero} if step is ADD else {}
    return _plane(name, rule.same("number", 1), doc, "a", uniform=True, step=step, **fields)


def _plane_scan(name: str, step: OpDef, scan: Scan, what: str) -> OpDef:
    fields: dict[str, Any] = {"identity": n.zero} if step is ADD else {}
    doc = f"{what} of the lanes {scan.value}."
    full = f"{scan.name.lower()}_{name}"
    return _plane(full, rule.same("number", 1), doc, "a", step=step, scan=scan, **fields)


PLANE_SUM = _plane_reduction("sum", ADD, "Sum over the plane, in all its units.")
PLANE_PROD = _plane_reduction("prod", MUL, "Product over the plane, in all its units.")
PLANE_MIN = _plane_reduction("min", MIN, "Minimum over the plane; NaN propagates.")
PLANE_MAX = _plane_reduction("max", MAX, "Maximum over the plane; NaN propagates.")
PLANE_INCLUSIVE_SUM = _plane_scan("sum", ADD, Scan.INCLUSIVE, "Sum")
PLANE_EXCLUSIVE_SUM = _plane_scan("sum", ADD, Scan.EXCLUSIVE, "Sum")
PLANE_INCLUSIVE_PROD = _plane_scan("prod", MUL, Scan.INCLUSIVE, "Product")
PLANE_EXCLUSIVE_PROD = _plane_scan("prod", MUL, Scan.EXCLUSIVE, "Product")
PLANE_ALL = _plane(
    "all",
    rule.same("bool", 1),
    "Whether the condition holds in all units.",
    "condition",
    uniform=True,
    step=AND,
)
PLANE_ANY = _plane(
    "any",
    rule.same("bool", 1),
    "Whether the condition holds in any unit.",
    "condition",
    uniform=True,
    step=OR,
)
PLANE_BALLOT = _plane(
    "ballot",
    rule.voting,
    "Bit k (of u64): the condition in lane k.",
    "condition",
    uniform=True,
    identity=n.zero,
)
PLANE_ELECT = _plane(
    "elect", rule.electing, "True in the first unit that has not returned.", "", identity=n.zero
)
PLANE_SHUFFLE = _plane(
    "shuffle",
    rule.shuffling_units,
    "The value of another lane (an index); the own value where there is no such lane.",
    "a, lane",
    identity=n.zero,
)
PLANE_SHUFFLE_XOR = _plane(
    "shuffle_xor",
    rule.shuffling_units,
    "The value of lane `own xor mask`.",
    "a, mask",
    identity=n.zero,
)
PLANE_SHUFFLE_UP = _plane(
    "shuffle_up",
    rule.shuffling_units,
    "The value of lane `own - delta`; the own value where there is none.",
    "a, delta",
    identity=n.zero,
)
PLANE_SHUFFLE_DOWN = _plane(
    "shuffle_down",
    rule.shuffling_units,
    "The value of lane `own + delta`; the own value where there is none.",
    "a, delta",
    identity=n.zero,
)

# Diagnosis


def _diagnosis(name: str, typing: Rule, doc: str, surface: str, **fields: Any) -> OpDef:
    reported = {"writes": frozenset((Resource.DIAGNOSIS,)), **fields}
    return _op(name, typing, doc, surface, unknown="it has no result", **reported)


PRINT = _diagnosis(
    "print",
    rule.nothing_of_anything,
    "Writes `text`, where `{}` or `{:>8.3f}` stands for each operand, and `end`, else a newline.",
    "print(...)",
    attrs=("text", "end"),
)
CHECK = _diagnosis(
    "check",
    rule.checking,
    "Ends the unit with a fault, unless the condition holds. Further "
    "operands (indices) are reported with the fault: index and extent, or values.",
    "assert condition",
    writes=frozenset((Resource.DIAGNOSIS, Resource.CONTROL)),
    attrs=("kind", "argument", "axis"),
)
BREAKPOINT = _diagnosis(
    "breakpoint",
    rule.nothing,
    "Stops in the debugger on the interpreter, and means nothing anywhere else.",
    "breakpoint()",
)
NAME = _diagnosis(
    "name",
    rule.leaving,
    "From here on the local `text` of the user has this value, for debuggers. `kind`: a number, a "
    "tuple, a record (with `fields`), a tensor (buffer, offset, shape, strides), or a comptime "
    "`value`. Only for targets with the feature `names`; no use of a value that counts.",
    "a = ...",
    attrs=("text", "kind", "fields", "value"),
)

# Mutable locals, before SSA construction
_VARIABLE = frozenset((Resource.VARIABLE,))
_ASSIGNED = "SSA construction replaces it"
VAR = _op(
    "var",
    rule.declaring,
    "A mutable local.",
    "a = ...",
    unknown=_ASSIGNED,
    allocates=True,
    attrs=("type",),
)
GET = _op(
    "get", rule.getting, "The present value of a local.", "a", unknown=_ASSIGNED, reads=_VARIABLE
)
SET = _op("set", rule.setting, "Assigns a local.", "a = b", unknown=_ASSIGNED, writes=_VARIABLE)

# Control flow. Regions end with a terminator; `if` yields its results, loops carry theirs. Effects
# are those of the operations inside, besides the flow of control.


def _control(name: str, typing: Rule, doc: str, surface: str, **fields: Any) -> OpDef:
    flow = frozenset((Resource.CONTROL,))
    return _op(name, typing, doc, surface, unknown="it directs the flow", writes=flow, **fields)


IF = _control(
    "if",
    rule.branching,
    "One of two regions; its results are what the region yields. `together`: the second serves "
    "also where the condition holds; what of, a `window` or a `row`.",
    "if condition: ...",
    regions=("then", "else"),
    attrs=("together",),
)
FOR = _control(
    "for",
    rule.counting,
    "For each position from start up to (or, for negative steps, down "
    "to) stop, exclusive. Body: the position and the carried values; `continue` gives the "
    "next ones, `break` the results. A step of 0 runs no iteration. `rising`: the step is above 0; "
    "`fits`: the position after the last one fits the type, so that a loop may compute it.",
    "for i in range(start, stop, step): ...",
    regions=("body",),
    attrs=("unroll", "rising", "fits"),
)
LOOP = _control(
    "loop",
    rule.carrying,
    "Repeats its body until `break`.",
    "while condition: ...",
    regions=("body",),
)
YIELD = _control(
    "yield",
    rule.leaving,
    "Ends a region of an `if` with its results.",
    "the end of a branch",
    is_terminator=True,
)
CONTINUE = _control(
    "continue",
    rule.leaving,
    "Goes on with the next iteration of the innermost loop.",
    "continue, or the end of a loop's body",
    is_terminator=True,
)
BREAK = _control(
    "break",
    rule.leaving,
    "Leaves the innermost loop with its results.",
    "break",
    is_terminator=True,
)
RETURN = _control("return", rule.nothing, "Ends the unit.", "return", is_terminator=True)

# Made of checks where a target has no traps
FAULT = _diagnosis(
    "fault",
    rule.reporting,
    "Notes fault `code` of the launch with up to four indices, unless one is noted already. "
    "`lanes`: units are lanes, and the last operand is the lane that has the fault.",
    "made of `check` by passes",
    attrs=("code", "lanes"),
)

# Cubes on a CPU: made by the fission of barriers, see `passes/fission.py`
UNITS = _control(
    "units",
    rule.nothing,
    "Runs its body once for each unit of the cube, or of the plane; `return` ends the unit's turn.",
    "made by the fission of barriers",
    regions=("body",),
)
PLANES = _control(
    "planes",
    rule.nothing,
    "Runs its body once for each plane of the cube; `return` ends the plane's turn.",
    "made by the fission of barriers",
    regions=("body",),
)
PLANE_POS = _op(
    "plane_pos",
    rule.one_index,
    "Position of the plane in its cube, inside `planes`.",
    "made by the fission of barriers",
    unknown="it differs from plane to plane",
    uniformity=Uniformity.NEVER,
)

# What one kind of hardware alone has: see `ir/cuda.py`, `ir/metal.py` and `ir/amx.py`
TABLE.update({row.name: row for row in (*cuda.ROWS, *metal.ROWS, *amx.ROWS)})
