"""Products of matrices: `matmul`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cubepy.array.memory import Memory
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType, f32, find_dtype
from cubepy.kernels.calls.arguments import wrong
from cubepy.kernels.calls.call import call
from cubepy.kernels.calls.epilogues import placed, with_bounds
from cubepy.kernels.calls.hooks import check_epilogue, parts_of_epilogue
from cubepy.kernels.calls.libraries import Shape, refused
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.matmul.blocks import Blocks, multiply_blocks
from cubepy.kernels.matmul.narrow import Narrow, multiply_narrow
from cubepy.kernels.matmul.problem import (
    COLUMNS,
    ROWS,
    Problem,
    Product,
    as_matrices,
    broadcast,
    check_factors,
    expanded,
    has_boxes,
    is_dense,
    product_extents,
    result_of,
    run_of,
    sums_of,
    turned,
)
from cubepy.kernels.matmul.split import Split, multiply_split
from cubepy.kernels.matmul.strategies import (
    FEW,
    InBlocks,
    OnCpus,
    choose,
    divide,
    is_cpu,
    narrow_height,
    parts_of_k,
    strip_cut,
)
from cubepy.kernels.matmul.streams import (
    Dots,
    Streams,
    add_parts,
    multiply_dots,
    multiply_streams,
)
from cubepy.kernels.matmul.strips import Strips, multiply_strips
from cubepy.kernels.matmul.units import Units, multiply_units
from cubepy.kernels.matmul.variants import others, problem_key
from cubepy.kernels.quantisation.operand import Quantised
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.record import dataclass
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.kernels.matmul.factors import Description, Factor

PRECISIONS = (None, "exact", "tf32", "flex32", "fast_accum")
"""What a caller may allow; products are at least as exact as each."""
_PLANS = Plans()
_NAMES, _OPTIONAL = ("a", "b", "bias"), ("bias",)
_USUAL = None, None, None
"""The parameters of calls without options, which are known by this object."""
LEAST_K, MOST_WHOLE, REST = 1 << 11, 1 << 12, 16
"""A k from which on it is cut to a multiple of a power of two where it has no equal parts: of the
largest one, at most, that leaves a rest of less than this part of it."""
LARGEST_WHOLE, GAIN = 1 << 16, 0.8
"""Larger powers of two, as long as the longest way of a cube, with the rest, becomes so much
shorter."""
FEW_COLUMNS, LONG_K = 8, 128
"""Columns up to which CPUs copy a right factor so that it is dense along k, for dot products of
rows, and elements of k from which on they do that, or turn a product that has few columns."""
_KERNELS = {Blocks: multiply_blocks, Units: multiply_units, Split: multiply_split}


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    epilogue: Any = None,
    precision: str | None = None,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """The product of two matrices, or of stacks of them; as `numpy.matmul`.

    `a`: (..., m, k) or (k,); `b`: (..., k, n) or (k,); any strides, the same dtype, no bools; axes
    before the last two are broadcast. `bias`: added; any shape that broadcasts to the result's.
    `epilogue`: a cube function `f(v, index, *extras)`, or `(f, *extras)` with further arrays; it
    gets sums and gives what is stored. One that reads `index` is called for one element at a time,
    whose index in the result it is, unless it asks for `v.line_size`: then, as where `index` is not
    read, `v` is a line of sums, of which `index` is the first element's. `precision`: "tf32" or
    "flex32" allow rounding of factors to these, where that is faster; "fast_accum" lets tensor
    cores add products of 8-bit floats with the fewer bits that they have for these; "exact" keeps
    processors from taking bf16 below 2**-126 for 0 and from splitting f32, and tensor cores from
    adding 8-bit floats.
    `dtype`: of the result, for products of floats. Gives an array of the library of `a`, or fills
    `out`, which is no argument.

    Each factor may be a `Quantised`. Two of them, of one dtype without zero points, whose scales do
    not change along k, are multiplied as they are: sums of integers are exact and scaled in f32.
    Others are widened: to the type of the factor that is not quantised, rounded once, or both to
    f32; of few rows on the way to registers, in f32, and on Hopper to f16 and bf16, to which scales
    are rounded too. The result is a float then: `dtype`, that of the factor that is not quantised,
    or f32.

    Products of f16, bf16 and 8-bit floats are added in f32 and rounded once; the results of 8-bit
    floats are f32, of i8, i16 and u8 i32, of u16 u32, others have the dtype of the factors.
    Integers wrap. The error of a float sum is at most k * 2**-24 (f64: 2**-53) times the sum of
    absolute products; tensor cores cut sums off, by up to (k + 1) * 2**-22 of that, and "tf32" cuts
    factors off first; processors with AMX or AVX512-BF16 take factors and sums of bf16 below
    2**-126 for 0, and Hopper's tensor cores keep 13 bits of 128 products of 8-bit floats at a time,
    whose sums are added in f32. Processors with AMX multiply larger matrices of f32 as sums of
    three bf16 each, with smaller errors than multiply-adds; the first bound holds, for all numbers.
    Raises `LaunchError` for shapes that do not fit, and `LaunchTypeError` for dtypes that do not.
    """
    kind = _checked(precision, dtype) if precision is not None or dtype is not None else None
    names, extras, function, key = _NAMES, (), None, None
    if epilogue is not None:
        function, extras, names_of_extras = parts_of_epilogue(epilogue)
        names = (*names, *names_of_extras)
        key = None if function is None else comptime_key(function)
    parameters = _USUAL if key is kind is precision is None else (precision, kind, key)
    if isinstance(a, Quantised) or isinstance(b, Quantised):
        planned = Options(function, precision, kind)
        return _call_quantised((a, b), (bias, *extras), names[2:], planned, parameters, out)
    arrays, asked = (a, b, bias, *extras), (bias is not None, function, precision, kind)
    return call(
        _PLANS, "matmul", names, arrays, parameters, _make, out, asked=asked, optional=_OPTIONAL
    )


def _checked(precision: str | None, dtype: Any) -> DType | None:
    """The dtype that the caller asks for, if any; E601, E602 for what cannot be asked for."""
    if precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise wrong("matmul", f"`precision` is {precision!r}", f"one of {known}")
    kind = None if dtype is None else find_dtype(dtype)
    if dtype is not None and (kind is None or not kind.is_float):
        raise refused("matmul", "dtype", f"is {dtype!r}", "name a float")
    return kind


def _make(
    has_bias: bool,
    epilogue: Callable[..., Any] | None,
    precision: str | None,
    dtype: DType | None,
    planner: Planner,
    arrays: list[Memory],
) -> None:
    """Plan a product of arrays without scales."""
    biases = arrays[2:3] if has_bias else []
    rest = tuple(arrays[2 + len(biases) :])
    _plan(planner, arrays[0], arrays[1], biases, rest, Options(epilogue, precision, dtype))


def _call_quantised(
    factors: tuple[Any, Any],
    rest: tuple[Any, ...],
    names: tuple[str, ...],
    options: Options,
    parameters: Any,
    out: Any,
) -> Any:
    """A product of which one or both factors are quantised; `rest`: bias and arrays of the
    epilogue."""
    from cubepy.kernels.matmul.factors import arrays_of, factor_of

    found: dict[str, Any] = {}
    how: dict[str, Description | None] = {}
    for name, x, other in zip(_NAMES, factors, reversed(factors), strict=False):
        arrays, how[name] = arrays_of(name, x, other)
        found |= arrays
    first = len(found)
    given = zip(names, rest, strict=True)
    found |= {name: x for name, x in given if x is not None or name not in _OPTIONAL}

    def make(planner: Planner, arrays: list[Memory]) -> None:
        given = dict(zip(found, arrays, strict=True))
        a, b = (given[n] if d is None else factor_of(n, given, d) for n, d in how.items())
        biases = [given["bias"]] if "bias" in given else []
        extras = tuple(arrays[first + len(biases) :])
        _plan(planner, a, b, biases, extras, options)

    key = parameters, tuple(how.values())
    return call(_PLANS, "matmul", tuple(found), tuple(found.values()), key, make, out)


# What is done for one signature


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller asked for beside the operands; `dtype` of the result, None for the usual."""

    epilogue: Callable[..., Any] | None
    precision: str | None
    dtype: DType | None


def _plan(
    planner: Planner,
    a: Memory | Factor,
    b: Memory | Factor,
    biases: list[Memory],
    extras: tuple[Memory, ...],
    options: Options,
) -> None:
    check_epilogue("matmul", options.epilogue, len(extras))
    usual = _usual_result(a, b, options)
    extents = product_extents("matmul", a.shape, b.shape)
    result = planner.result(Shape(extents, options.dtype or usual))
    for bias in biases:
        if broadcast(bias.shape, extents) != extents:
            reason = f"`bias` has shape {bias.shape}, the result {extents}"
            raise wrong("matmul", reason, "bias broadcasts to the result")
    if 0 in extents:
        return
    seen = tuple(_seen(expanded(bias, extents), a, b) for bias in biases)
    result = _seen(result, a, b)
    epilogue = placed(options.epilogue, _own_axes(a, b, len(result.shape)), len(result.shape))
    finish = epilogue, with_bounds(epilogue, extras, result.shape), options.precision
    left = _stacked(as_matrices(a, True), result) if isinstance(a, Memory) else a
    right = _stacked(as_matrices(b, False), result) if isinstance(b, Memory) else b
    if isinstance(left, Memory) and isinstance(right, Memory):
        multiply(planner, Product(left, right, result, seen, *finish))
    else:
        _multiply_quantised(planner, left, right, Product(result, result, result, seen, *finish))


def _stacked(x: Memory, result: Memory) -> Memory:
    """Matrices for each stack of the result."""
    return expanded(x, (*result.shape[:-2], *x.shape[-2:]))


def _multiply_quantised(
    planner: Planner, a: Memory | Factor, b: Memory | Factor, p: Product
) -> None:
    """Add the launches of a product of quantised factors; `p` has all but these."""
    from cubepy.kernels.matmul import quantised
    from cubepy.kernels.matmul.factors import Factor

    if isinstance(a, Factor) and isinstance(b, Factor) and quantised.are_alike(a, b):
        q = replace(p, a=_stacked(a.factor, p.out), b=_stacked(b.factor, p.out))
        scales = quantised.scales_of(a, b, p.out.shape)
        if scales:
            multiply(planner, replace(q, scales=scales))
            return
        problem = problem_of(q)
        blocks = quantised.blockwise(planner.target, problem, a, b)
        if blocks is not None:
            quantised.launch_blockwise(planner, problem, q, (a.scales, b.scales), blocks)
            return
    if isinstance(b, Memory) and p.epilogue is None:  # as the transposed product
        assert isinstance(a, Factor)
        a, b, p = turned(b), replace(a, is_turned=not a.is_turned), _turned(p)
    if isinstance(a, Memory):
        assert isinstance(b, Factor)
        values = turned(b.values) if b.is_turned else b.values
        q = replace(p, a=a, b=_stacked(values, p.out))
        q = _merged(q) if len(b.extents) == 2 else q
        hopper = quantised.mixed(planner.target, q, b)
        if hopper is not None:
            quantised.launch_mixed(planner, q, b, hopper)
            return
        t = quantised.widened(planner.target, q, b) or quantised.streamed(planner.target, q, b)
        if t is not None:
            quantised.launch_widened(planner, q, b, t)
            return
    kind = next((x.dtype for x in (a, b) if isinstance(x, Memory)), f32)
    left, right = (
        x if isinstance(x, Memory) else _stacked(quantised.widened_copy(planner, x, kind), p.out)
        for x in (a, b)
    )
    multiply(planner, replace(p, a=left, b=right))


def _usual_result(a: Memory | Factor, b: Memory | Factor, options: Options) -> DType:
    """The dtype of the result, unless the caller names one; E602 for factors that do not fit."""
    if not (isinstance(a, Memory) and isinstance(b, Memory)):
        from cubepy.kernels.matmul.quantised import kind_of

        return kind_of(a, b)
    check_factors("matmul", a, b)
    if options.dtype is not None and not a.dtype.is_float:
        raise refused("matmul", "dtype", f"is {options.dtype}, of {a.dtype}", "leave it out")
    return result_of(a.dtype)


def _seen(x: Memory, a: Memory | Factor, b: Memory | Factor) -> Memory:
    """An array of the result's shape as matrices."""
    shape, strides = x.shape, x.strides
    if len(b.shape) == 1:
        shape, strides = (*shape, 1), (*strides, 0)
    if len(a.shape) == 1:
        shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])
    return replace(x, shape=shape, strides=strides)


def _own_axes(a: Memory | Factor, b: Memory | Factor, rank: int) -> tuple[int, ...]:
    """The axes that the result has of those that `_seen` gives it."""
    added = {rank - 2} if len(a.shape) == 1 else set[int]()
    added |= {rank - 1} if len(b.shape) == 1 else set()
    return tuple(k for k in range(rank) if k not in added)


def multiply(planner: Planner, p: Product) -> None:
    """Add the launches of a product."""
    p = _turned_if_better(planner, _merged(p))
    if p.scales:
        from cubepy.kernels.matmul.quantised import with_scales

        p = with_scales(p)
    p = _aligned(planner, p)
    problem = problem_of(p)
    parts, length = _division_of_k(planner.target, problem) if len(p.out.shape) == 2 else (1, 0)
    if parts > 1:
        _launch_parts(planner, problem, p, parts, length)
    else:
        launch(planner, problem, p)


def _division_of_k(target: Target, problem: Problem) -> tuple[int, int]:
    """How many parts of k are multiplied side by side, and their length; those of the most of k
    that has such parts, before a rest, where all of it has none, or less than half as many.

    Larger multiples allow more parts and leave longer rests, which are multiplied behind them.
    """
    parts = parts_of_k(target, problem)
    unit = min(MOST_WHOLE, 1 << max(1, problem.k // REST).bit_length() - 1)
    whole = problem.k // unit * unit
    if not LEAST_K <= whole < problem.k:
        return parts, problem.k // parts
    more = parts_of_k(target, replace(problem, k=whole))
    if more <= 2 * parts and parts > 1:
        return parts, problem.k // parts
    found = more, whole // more
    while found[0] > 1 and unit < LARGEST_WHOLE:
        unit *= 2
        whole = problem.k // unit * unit
        more = parts_of_k(target, replace(problem, k=whole)) if whole >= LEAST_K else 1
        if more > found[0] and whole // more + problem.k - whole < found[1] * GAIN:
            found = more, whole // more
    return found


def problem_of(p: Product) -> Problem:
    """What strategies may read of a product."""
    *batch, m, n = p.out.shape
    sums = sums_of(p.a.dtype)
    finished = bool(p.biases) or p.epilogue is not None or p.out.dtype is not sums
    left = ROWS if is_dense(p.a, -1) or not is_dense(p.a, -2) else COLUMNS
    is_along_k = is_dense(p.b, -2) and (n == 1 or not is_dense(p.b, -1))  # of one column, too
    right = COLUMNS if is_along_k else ROWS
    k = p.a.shape[-1]
    boxes = has_boxes(_rowwise(p.a, left)) and has_boxes(_rowwise(p.b, right))
    return Problem(
        *(m, n, k, tuple(batch), sums, sums, p.out.dtype, left, right),
        is_finished=finished,
        elements=None if p.precision == "exact" else p.a.dtype,
        has_dense_rows=is_dense(p.a, -1),
        precision=p.precision,
        has_boxes=boxes and has_boxes(p.out),
        has_factor_boxes=boxes,
        dtype=p.a.dtype,
        runs=(run_of(_rowwise(p.a, left), -1), run_of(_rowwise(p.b, right), -1)),
        lies_apart=right == ROWS and not is_dense(p.b, -1),
    )


def _launch_parts(planner: Planner, problem: Problem, p: Product, parts: int, length: int) -> None:
    """Products over parts of k as a stack, one over the rest of k, if there is one, and the sum of
    all these."""
    sums, (m, k), (row, column) = problem.sums, p.a.shape[-2:], p.b.strides[-2:]
    (step, along), whole = p.a.strides[-2:], parts * length
    a = replace(p.a, shape=(parts, m, length), strides=(length * along, step, along))
    b = replace(p.b, shape=(parts, length, problem.n), strides=(length * row, row, column))
    made = planner.scratch((parts + (whole < k), m, problem.n), sums)
    first = replace(made, shape=(parts, m, problem.n))
    stack = Product(a, b, first, (), None, (), p.precision)
    launch(planner, problem_of(stack), stack)
    if whole < k:
        last = made.address + parts * made.strides[0]
        out = replace(made, address=last, shape=made.shape[1:], strides=made.strides[1:])
        a, b = _behind(p.a, -1, whole), _behind(p.b, -2, whole)
        rest = Product(a, b, out, (), None, (), p.precision)
        launch(planner, problem_of(rest), rest)
    line = max(1, planner.target.line_bytes // sums.itemsize)
    added: dict[str, Any] = {
        "out": replace(p.out, shape=p.out.shape[-2:], strides=p.out.strides[-2:]),
        "biases": tuple(replace(x, shape=x.shape[-2:], strides=x.strides[-2:]) for x in p.biases),
        "extras": p.extras,
        "epilogue": p.epilogue,
        "line": line,
    }
    if planner.target.kind == "cpu":
        planner.launch(add_parts, m, parts=made, **added)
    else:
        from cubepy.kernels.matmul import on_gpus

        on_gpus.launch_sum_of_parts(planner, made, m, problem.n, added)


def _behind(x: Memory, axis: int, first: int) -> Memory:
    """A matrix without the places before `first` of an axis."""
    shape = list(x.shape[-2:])
    shape[axis] -= first
    address = x.address + first * x.strides[axis]
    return replace(x, address=address, shape=tuple(shape), strides=x.strides[-2:])


def _merged(p: Product) -> Product:
    """Stacks of left factors as one tall one, where they share the right factor."""
    while len(p.out.shape) > 2 and p.epilogue is None and _shares_right(p):
        p = replace(
            p,
            a=_folded(p.a),
            b=replace(p.b, shape=_without(p.b.shape), strides=_without(p.b.strides)),
            out=_folded(p.out),
            biases=tuple(map(_folded, p.biases)),
            scales=tuple(map(_folded, p.scales)),
        )
    return p


def _shares_right(p: Product) -> bool:
    shared = p.b.strides[-3] == 0 or p.out.shape[-3] == 1
    return shared and all(map(_folds, (p.a, p.out, *p.biases, *p.scales)))


def _folds(x: Memory) -> bool:
    """Whether the matrices of the last stack follow each other."""
    return x.shape[-3] == 1 or x.strides[-3] == x.shape[-2] * x.strides[-2]


def _folded(x: Memory) -> Memory:
    rows = x.shape[-3] * x.shape[-2]
    step = x.strides[-2] if x.shape[-2] > 1 else x.strides[-3]
    return replace(
        x,
        shape=(*x.shape[:-3], rows, x.shape[-1]),
        strides=(*x.strides[:-3], step, x.strides[-1]),
    )


def _without(values: tuple[int, ...]) -> tuple[int, ...]:
    return (*values[:-3], *values[-2:])


def _turned_if_better(planner: Planner, p: Product) -> Product:
    """The transposed product, where that has long rows: one column, or columns dense in memory; or
    on CPUs few columns that are long."""
    if p.epilogue is not None:
        return p
    narrow = p.out.shape[-1] == 1 and p.out.shape[-2] > 1
    if not narrow and is_cpu(planner.target) and _has_few_columns(p):
        narrow, p = True, replace(p, b=_dense_columns(planner, p.b))
    if not narrow and (is_dense(p.out, -1) or not is_dense(p.out, -2)):
        return p
    return _turned(replace(p, a=turned(p.b), b=turned(p.a)))


def _has_few_columns(p: Product) -> bool:
    """Whether dot products or strips make the transposed product, which has few rows: of columns
    that are dense along k, or so few that they are copied for that."""
    (rows, columns), k = p.out.shape[-2:], p.a.shape[-1]
    is_dense_along_k = is_dense(p.b, -2)
    if k < LONG_K or columns > (FEW if is_dense_along_k else FEW_COLUMNS):
        return False
    if is_dense(p.a, -1):
        return rows > FEW and (len(p.b.shape) == 2 or is_dense_along_k)
    return is_dense_along_k and is_dense(p.a, -2)


def _dense_columns(planner: Planner, b: Memory) -> Memory:
    """A matrix, or a copy of it, whose columns are dense."""
    if is_dense(b, -2):
        return b
    dense = planner.scratch(turned(b).shape, b.dtype)
    copy_transposed(planner, turned(b), dense)
    return turned(dense)


def _turned(p: Product) -> Product:
    """All of a product but its factors, transposed."""
    biases, scales = tuple(map(turned, p.biases)), tuple(map(turned, p.scales))
    return replace(p, out=turned(p.out), biases=biases, scales=scales)


def launch(planner: Planner, problem: Problem, p: Product, *, may_copy: bool = True) -> None:
    """The launch of the kernel that the strategy chose, behind those that copy factors, if they
    may."""
    target = planner.target
    default = choose(target, problem)
    t = planner.pick(
        "matmul", problem_key(problem), default, lambda: others(target, default, problem)
    )
    if not isinstance(t, OnCpus):
        from cubepy.kernels.matmul import on_gpus

        copied = on_gpus.copied(planner, problem, p, t) if may_copy else None
        if copied is None:
            on_gpus.launch(planner, problem, p, t)
        else:
            launch(planner, problem_of(copied), copied, may_copy=False)
        return
    a = turned(p.a) if problem.left == COLUMNS else p.a
    b = turned(p.b) if problem.right == COLUMNS else p.b
    finish = {"biases": p.biases, "extras": p.extras, "epilogue": p.epilogue}
    match t:
        case Streams() | Dots():
            cubes = problem.batches * -(-problem.n // t.width)
            kernel = multiply_streams if isinstance(t, Streams) else multiply_dots
            planner.launch(kernel, cubes, a=p.a, b=b, out=p.out, **finish, t=t)
        case Strips():
            height, width = strip_cut(target, problem, t)
            cubes = problem.batches * -(-problem.m // height) * -(-problem.n // width)
            cut = {"height": height, "width": width}
            planner.launch(multiply_strips, cubes, a=a, b=b, out=p.out, **finish, **cut, t=t)
        case Narrow():
            _launch_narrow(planner, problem, p, (a, b), t)
        case Blocks() | Units() | Split():
            _launch_blocks(planner, problem, p, (a, b), t)


Factors = tuple[Memory, Memory]
"""The factors of a product, along the axis that each is dense along."""


def _launch_narrow(
    planner: Planner, problem: Problem, p: Product, factors: Factors, t: Narrow
) -> None:
    height = narrow_height(planner.target, problem, t)
    planner.launch(
        multiply_narrow,
        problem.batches * -(-problem.m // height),
        a=factors[0],
        b=factors[1],
        out=p.out,
        biases=p.biases,
        extras=p.extras,
        height=height,
        epilogue=p.epilogue,
        t=t,
    )


def _aligned(planner: Planner, p: Product) -> Product:
    """A product whose factors tensor maps can describe: copied, where that is worth it."""
    if is_cpu(planner.target):
        return p
    from cubepy.kernels.matmul import on_gpus

    return on_gpus.for_maps(planner, p, problem_of(p))


def _rowwise(x: Memory, dense: str) -> Memory:
    """A factor, or its transpose, so that it is dense along rows."""
    return x if dense == ROWS else turned(x)


def _launch_blocks(
    planner: Planner, problem: Problem, p: Product, factors: Factors, t: InBlocks
) -> None:
    d = divide(planner.target, problem, t)
    sums: tuple[Memory, ...] = ()
    if problem.k > d.depth and p.out.dtype is not problem.sums:
        sums = (planner.scratch(p.out.shape, problem.sums),)
    planner.launch(
        _KERNELS[type(t)],
        problem.batches * -(-problem.m // d.height) * -(-problem.n // d.width),
        a=factors[0],
        b=factors[1],
        out=p.out,
        sums=sums,
        biases=p.biases,
        extras=p.extras,
        height=d.height,
        width=d.width,
        depth=d.depth,
        epilogue=p.epilogue,
        t=replace(t, cut=()),  # the code is the same
    )
