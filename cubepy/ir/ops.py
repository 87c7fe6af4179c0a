"""The op table: the one place where operations are defined.

Builder, printer, parser, verifier, folding, the backends' completeness tests and the documentation
page are driven by these rows. No row encodes an algorithm.
"""

from __future__ import annotations

import math
import operator

from cubepy.ir import cuda, metal
from cubepy.ir import meaning as m
from cubepy.ir import opdef as rule
from cubepy.ir.opdef import Effect, OpDef, Rule, Uniformity

TABLE: dict[str, OpDef] = {}


def _op(name: str, typing: Rule, doc: str, **fields: object) -> OpDef:
    row = OpDef(name, doc, typing, **fields)  # type: ignore[arg-type]
    TABLE[name] = row
    return row


def _same(
    name: str, class_name: str, count: int, doc: str, meaning: m.Meaning, commutes: bool = False
) -> OpDef:
    return _op(name, rule.same(class_name, count), doc, meaning=meaning, is_commutative=commutes)


def _elementary(name: str, ulp: float, meaning: m.Meaning, count: int = 1) -> OpDef:
    doc = (
        f"{name}, within {ulp:g} ULP in f32 and f64; expanded where a target has no such function."
    )
    return _op(name, rule.same("float", count), doc, meaning=meaning, exact=False, ulp=ulp)


# Constants and conversions
CONST = _op(
    "const",
    rule.literal,
    "The value of an attribute.",
    attrs=("type", "value"),
    uniformity=Uniformity.ALWAYS,
)
CAST = _op(
    "cast",
    rule.casting,
    "Conversion per lane: integers wrap, floats round to nearest even, "
    "float to integer truncates, saturates and takes NaN to 0, to bool tests for nonzero.",
    attrs=("type",),
)
BITCAST = _op(
    "bitcast", rule.bit_casting, "The same bits as another type of the same size.", attrs=("type",)
)

# Arithmetic: integers wrap; floats are IEEE 754, rounded to nearest even, denormals kept
ADD = _same("add", "number", 2, "Sum.", m.add, True)
SUB = _same("sub", "number", 2, "Difference.", m.sub)
MUL = _same("mul", "number", 2, "Product.", m.mul, True)
FMA = _same("fma", "float", 3, "a * b + c, rounded once.", m.fma)
DIV = _same("div", "float", 2, "Quotient, correctly rounded.", m.div)
FLOORDIV = _same("floordiv", "number", 2, m.floordiv.__doc__ or "", m.floordiv)
MOD = _same("mod", "number", 2, m.mod.__doc__ or "", m.mod)
DIV_TRUNC = _same("div_trunc", "integer", 2, m.div_trunc.__doc__ or "", m.div_trunc)
REM_TRUNC = _same("rem_trunc", "integer", 2, m.rem_trunc.__doc__ or "", m.rem_trunc)
MUL_HI = _same("mul_hi", "integer", 2, m.mul_hi.__doc__ or "", m.mul_hi, True)
NEG = _same("neg", "number", 1, m.neg.__doc__ or "", m.neg)
ABS = _same("abs", "number", 1, m.absolute.__doc__ or "", m.absolute)
MIN = _same("min", "number", 2, m.minimum.__doc__ or "", m.minimum, True)
MAX = _same("max", "number", 2, m.maximum.__doc__ or "", m.maximum, True)
COPYSIGN = _same("copysign", "float", 2, m.copysign.__doc__ or "", m.copysign)
SQRT = _same("sqrt", "float", 1, m.sqrt.__doc__ or "", m.sqrt)
FLOOR = _same("floor", "float", 1, "Largest integral value not above a.", m.floor)
CEIL = _same("ceil", "float", 1, "Smallest integral value not below a.", m.ceil)
TRUNC = _same("trunc", "float", 1, "Integral part.", m.trunc)
RINT = _same("rint", "float", 1, "Nearest integral value, ties to even.", m.rint)

# Bits
AND = _same("and", "bits", 2, "Bitwise (on bools: logical) and.", m.bit_and, True)
OR = _same("or", "bits", 2, "Bitwise (on bools: logical) or.", m.bit_or, True)
XOR = _same("xor", "bits", 2, "Bitwise (on bools: logical) exclusive or.", m.bit_xor, True)
NOT = _same("not", "bits", 1, m.bit_not.__doc__ or "", m.bit_not)
SHL = _same("shl", "integer", 2, m.shl.__doc__ or "", m.shl)
SHR = _same("shr", "integer", 2, m.shr.__doc__ or "", m.shr)
POPCOUNT = _same("popcount", "integer", 1, m.popcount.__doc__ or "", m.popcount)
CLZ = _same("clz", "integer", 1, m.count_leading_zeros.__doc__ or "", m.count_leading_zeros)
CTZ = _same("ctz", "integer", 1, m.count_trailing_zeros.__doc__ or "", m.count_trailing_zeros)


def _comparison(name: str, doc: str, function: object, commutes: bool = False) -> OpDef:
    meaning = m.compare(function)  # type: ignore[arg-type]
    return _op(name, rule.comparison, doc, meaning=meaning, is_commutative=commutes)


EQ = _comparison("eq", "Equal; false with NaN.", operator.eq, True)
NE = _comparison("ne", "Not equal; true with NaN.", operator.ne, True)
LT = _comparison("lt", "Less; false with NaN.", operator.lt)
LE = _comparison("le", "Less or equal; false with NaN.", operator.le)
GT = _comparison("gt", "Greater; false with NaN.", operator.gt)
GE = _comparison("ge", "Greater or equal; false with NaN.", operator.ge)
SELECT = _op("select", rule.selection, "a where the mask is true, else b; both are evaluated.")

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

# Lines
SPLAT = _op("splat", rule.splatting, "A scalar repeated in all lanes.", attrs=("lanes",))
EXTRACT = _op(
    "extract",
    rule.extracting,
    "One lane of a line; an index operand instead of the "
    "attribute counts from 0 and must be in range.",
    attrs=("lane",),
)
INSERT = _op("insert", rule.inserting, "A line with one lane replaced.", attrs=("lane",))
SHUFFLE = _op(
    "shuffle", rule.shuffling, "Lanes chosen from the concatenation of two lines.", attrs=("lanes",)
)
LANE_MASK = _op(
    "lane_mask", rule.masking, "True in lanes k with first <= k < end.", attrs=("lanes",)
)


def _reduction(name: str, class_name: str, doc: str) -> OpDef:
    order = "halves of the lanes are combined until one is left; an odd lane waits behind them"
    return _op(name, rule.reducing(class_name), f"{doc} Order: {order}.")


REDUCE_ADD = _reduction("reduce_add", "number", "Sum of the lanes.")
REDUCE_MUL = _reduction("reduce_mul", "number", "Product of the lanes.")
REDUCE_MIN = _reduction("reduce_min", "number", "Minimum of the lanes; NaN propagates.")
REDUCE_MAX = _reduction("reduce_max", "number", "Maximum of the lanes; NaN propagates.")
REDUCE_AND = _reduction("reduce_and", "bits", "Bitwise (on bools: logical) and of the lanes.")
REDUCE_OR = _reduction("reduce_or", "bits", "Bitwise (on bools: logical) or of the lanes.")

# Memory: offsets count elements
ALLOC = _op(
    "alloc",
    rule.allocating,
    "Memory of the cube (shared) or of the unit (local), uninitialised.",
    effect=Effect.WRITE,
    uniformity=Uniformity.ALWAYS,
    attrs=("type", "size", "space"),
)
LOAD = _op(
    "load",
    rule.loading,
    "Reads a scalar or consecutive elements as a line; with a mask, "
    "lanes that are off are not accessed and give the fill.",
    effect=Effect.READ,
    attrs=("type", "align", "hint"),
)
STORE = _op(
    "store",
    rule.storing,
    "Writes a scalar or the lanes of a line; with a mask, lanes that are off are not accessed.",
    effect=Effect.WRITE,
    attrs=("align", "hint"),
)
PREFETCH = _op(
    "prefetch",
    rule.addressing,
    "A hint that the address will be read soon; any address is legal.",
    effect=Effect.WRITE,
    attrs=("level",),
)
MISALIGNMENT = _op(
    "misalignment",
    rule.aligning,
    "How many elements the address lies behind a multiple of `bytes`.",
    attrs=("bytes",),
)


def _atomic(name: str, doc: str, values: int = 1) -> OpDef:
    return _op(
        f"atomic_{name}",
        rule.updating(values),
        doc + " Relaxed; gives the old value.",
        effect=Effect.WRITE,
        uniformity=Uniformity.NEVER,
    )


ATOMIC_ADD = _atomic("add", "Adds.")
ATOMIC_MIN = _atomic("min", "Minimum.")
ATOMIC_MAX = _atomic("max", "Maximum.")
ATOMIC_AND = _atomic("and", "Bitwise and.")
ATOMIC_OR = _atomic("or", "Bitwise or.")
ATOMIC_XOR = _atomic("xor", "Bitwise exclusive or.")
ATOMIC_EXCHANGE = _atomic("exchange", "Replaces.")
ATOMIC_CAS = _atomic("cas", "Replaces by the second value where the first is found.", 2)
ATOMIC_LOAD = _atomic("load", "Reads.", 0)

# Positions
UNIT_POS = _op(
    "unit_pos",
    rule.positioning,
    "Position of the unit in its cube.",
    uniformity=Uniformity.NEVER,
    attrs=("axis",),
)
CUBE_POS = _op(
    "cube_pos",
    rule.positioning,
    "Position of the cube in the grid.",
    uniformity=Uniformity.ALWAYS,
    attrs=("axis",),
)
CUBE_COUNT = _op(
    "cube_count",
    rule.positioning,
    "Cubes in the grid.",
    uniformity=Uniformity.ALWAYS,
    attrs=("axis",),
)
ABSOLUTE_POS = _op(
    "absolute_pos",
    rule.positioning,
    "Position of the unit in the whole launch; "
    "`all` is cube_pos * cube_dim + unit_pos, each over all axes.",
    uniformity=Uniformity.NEVER,
    attrs=("axis",),
)

# Synchronisation
SYNC_CUBE = _op(
    "sync_cube",
    rule.nothing,
    "All units of the cube arrive before any goes on; their "
    "accesses to shared and global memory are ordered.",
    effect=Effect.SYNC,
)
SYNC_PLANE = _op("sync_plane", rule.nothing, "As sync_cube, for the plane.", effect=Effect.SYNC)
SYNC_STORAGE = _op(
    "sync_storage", rule.nothing, "Orders the unit's accesses to global memory.", effect=Effect.SYNC
)

# Planes: all units of a plane take part, those that returned give the identity. Reductions combine
# lane k with lane k xor d for d = plane_dim / 2, ..., 2, 1; scans go from lane 0 upwards.


def _plane(name: str, typing: Rule, doc: str) -> OpDef:
    return _op(f"plane_{name}", typing, doc, effect=Effect.SYNC, uniformity=Uniformity.NEVER)


_number = rule.same("number", 1)
PLANE_SUM = _plane("sum", _number, "Sum over the plane, in all its units.")
PLANE_PROD = _plane("prod", _number, "Product over the plane, in all its units.")
PLANE_MIN = _plane("min", _number, "Minimum over the plane; NaN propagates.")
PLANE_MAX = _plane("max", _number, "Maximum over the plane; NaN propagates.")
PLANE_INCLUSIVE_SUM = _plane("inclusive_sum", _number, "Sum over the lanes up to the own one.")
PLANE_EXCLUSIVE_SUM = _plane("exclusive_sum", _number, "Sum over the lanes before the own one.")
PLANE_INCLUSIVE_PROD = _plane("inclusive_prod", _number, "Product of the lanes up to the own one.")
PLANE_EXCLUSIVE_PROD = _plane("exclusive_prod", _number, "Product of the lanes before the own one.")
PLANE_ALL = _plane("all", rule.same("bool", 1), "Whether the condition holds in all units.")
PLANE_ANY = _plane("any", rule.same("bool", 1), "Whether the condition holds in any unit.")
PLANE_BALLOT = _plane("ballot", rule.voting, "Bit k (of u64): the condition in lane k.")
PLANE_ELECT = _plane("elect", rule.electing, "True in the first unit that has not returned.")
PLANE_SHUFFLE = _plane(
    "shuffle",
    rule.shuffling_units,
    "The value of another lane (an index); the own value where there is no such lane.",
)
PLANE_SHUFFLE_XOR = _plane("shuffle_xor", rule.shuffling_units, "The value of lane `own xor mask`.")
PLANE_SHUFFLE_UP = _plane(
    "shuffle_up",
    rule.shuffling_units,
    "The value of lane `own - delta`; the own value where there is none.",
)
PLANE_SHUFFLE_DOWN = _plane(
    "shuffle_down",
    rule.shuffling_units,
    "The value of lane `own + delta`; the own value where there is none.",
)

# Diagnosis
PRINT = _op(
    "print",
    rule.nothing_of_anything,
    "Writes the operands between the parts of `text`.",
    effect=Effect.WRITE,
    attrs=("text",),
)
CHECK = _op(
    "check",
    rule.checking,
    "Ends the unit with a fault, unless the condition holds. Further "
    "operands (indices) are told with the fault: index and extent, or values.",
    effect=Effect.WRITE,
    attrs=("kind", "argument", "axis"),
)

BREAKPOINT = _op(
    "breakpoint",
    rule.nothing,
    "Stops in the debugger on the interpreter, and means nothing anywhere else.",
    effect=Effect.WRITE,
)
NAME = _op(
    "name",
    rule.leaving,
    "From here on the local `text` of the user has this value, for debuggers. `kind`: a number, a "
    "tuple, a record (with `fields`), a tensor (buffer, offset, shape, strides), or a comptime "
    "`value`. Only for targets with the feature `names`; no use of a value that counts.",
    effect=Effect.WRITE,
    attrs=("text", "kind", "fields", "value"),
)

# Mutable locals, before SSA construction
VAR = _op("var", rule.declaring, "A mutable local.", effect=Effect.WRITE, attrs=("type",))
GET = _op("get", rule.getting, "The present value of a local.", effect=Effect.READ)
SET = _op("set", rule.setting, "Assigns a local.", effect=Effect.WRITE)

# Control flow. Regions end with a terminator; `if` yields its results, loops carry theirs.
IF = _op(
    "if",
    rule.branching,
    "One of two regions; its results are what the region yields.",
    effect=Effect.CONTROL,
    regions=("then", "else"),
)
FOR = _op(
    "for",
    rule.counting,
    "For each position from start up to (or, for negative steps, down "
    "to) stop, exclusive. Body: the position and the carried values; `continue` gives the "
    "next ones, `break` the results. A step of 0 runs no iteration.",
    effect=Effect.CONTROL,
    regions=("body",),
    attrs=("unroll",),
)
LOOP = _op(
    "loop",
    rule.carrying,
    "Repeats its body until `break`.",
    effect=Effect.CONTROL,
    regions=("body",),
)
YIELD = _op(
    "yield",
    rule.leaving,
    "Ends a region of an `if` with its results.",
    effect=Effect.CONTROL,
    is_terminator=True,
)
CONTINUE = _op(
    "continue",
    rule.leaving,
    "Goes on with the next iteration of the innermost loop.",
    effect=Effect.CONTROL,
    is_terminator=True,
)
BREAK = _op(
    "break",
    rule.leaving,
    "Leaves the innermost loop with its results.",
    effect=Effect.CONTROL,
    is_terminator=True,
)
RETURN = _op("return", rule.nothing, "Ends the unit.", effect=Effect.CONTROL, is_terminator=True)

# Made of checks where a target has no traps: tells the first fault of a launch
FAULT = _op(
    "fault",
    rule.telling,
    "Notes fault `code` of the launch with up to four indices, unless one is noted already.",
    effect=Effect.WRITE,
    attrs=("code",),
)

# Cubes on a CPU: made by the fission of barriers, see `passes/fission.py`
UNITS = _op(
    "units",
    rule.nothing,
    "Runs its body once for each unit of the cube, or of the plane; `return` ends the unit's turn.",
    effect=Effect.CONTROL,
    regions=("body",),
)
PLANES = _op(
    "planes",
    rule.nothing,
    "Runs its body once for each plane of the cube; `return` ends the plane's turn.",
    effect=Effect.CONTROL,
    regions=("body",),
)
PLANE_POS = _op(
    "plane_pos",
    rule.one_index,
    "Position of the plane in its cube, inside `planes`.",
    uniformity=Uniformity.NEVER,
)

# What one kind of hardware alone has: see `ir/cuda.py` and `ir/metal.py`
TABLE.update({row.name: row for row in (*cuda.ROWS, *metal.ROWS)})
