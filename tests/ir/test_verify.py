"""Each rule of the verifier has kernels that break it, and only it."""

import pytest

from cubepy.artifact import Extent, Scalar
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Param, Region, Value
from cubepy.ir.parser import parse_kernel
from cubepy.ir.types import f32, index
from cubepy.ir.verify import InvalidIR, verify

HEAD = """kernel @k(%x: buffer<f32, global> = data x, %n: index = shape x 0, %a: f32 = value a,
%p: bool_ = value p, %l: line<f32, 4> = value l) cube_dim 1 1 1 plane_dim 1 {
"""
RETURN = "return\n"
IF = "if %p then {{ {} }} else {{ {} }}"
FOR = "for %n, %n, %n {} body(%i: index{}) {{ {} }}"


def kernel(*operations: Op, params: tuple[Param, ...] = ()) -> Kernel:
    return Kernel("k", params, Region((), operations))


def messages(broken: Kernel) -> str:
    with pytest.raises(InvalidIR) as caught:
        verify(broken, "a pass")
    assert "after a pass" in str(caught.value)
    return str(caught.value)


BROKEN = {
    # 2. Typing
    "operands differ": ("%0 = add %a, %n : f32", "operands differ"),
    "class": ("%0 = and %a, %a : f32", "takes bits types"),
    "count": ("%0 = add %a : f32", "takes 2 operands, got 1"),
    "result type": ("%0 = add %a, %a : f64", "gives"),
    "missing result": ("add %a, %a", "gives"),
    "buffer as operand": ("%0 = add %x, %x : f32", "not a scalar or a line"),
    "select of buffers": ("%0 = select %p, %x, %x : buffer<f32, global>", "not a scalar or a line"),
    "mask": ("%0 = select %a, %n, %n : index", "is no mask"),
    "no constant": ("%0 = const {type = f32} : f32", "is no f32"),
    "integer as float": ("%0 = const {type = f32, value = 1} : f32", "1 is no f32"),
    "float as integer": ("%0 = const {type = i32, value = 1.0} : i32", "1.0 is no i32"),
    "integer as bool": ("%0 = const {type = bool_, value = 1} : bool_", "1 is no bool_"),
    "constant out of range": ("%0 = const {type = i8, value = 128} : i8", "out of range"),
    "constant line": ("%0 = const {type = line<f32, 4>, value = 0.0} : line<f32, 4>", "is a line"),
    "cast changes lanes": ("%0 = cast %l {type = f32} : f32", "cannot turn"),
    "bitcast changes size": ("%0 = bitcast %a {type = f64} : f64", "differ in size"),
    "no lanes": ("%0 = splat %a {lanes = 0} : line<f32, 4>", "at least one lane"),
    "splat of a line": ("%0 = splat %l {lanes = 4} : line<f32, 4>", "is not a scalar"),
    "lane outside": ("%0 = extract %l {lane = 4} : f32", "no such lane"),
    "no line": ("%0 = extract : f32", "takes a line"),
    "lane twice": ("%0 = extract %l, %n {lane = 1} : f32", "takes 1 operands"),
    "insert another type": ("%0 = insert %l, %n {lane = 1} : line<f32, 4>", "cannot insert"),
    "shuffle outside": ("%0 = shuffle %l, %l {lanes = [8]} : line<f32, 1>", "is outside"),
    "reduce a scalar": ("%0 = reduce_add %a : f32", "is not a line"),
    "lane mask of floats": ("%0 = lane_mask %a, %a {lanes = 4} : line<bool_, 4>", "with indices"),
    "axis": ("%0 = unit_pos {axis = 'w'} : index", "needs an axis"),
    "alloc in global": (
        "%0 = alloc {type = f32, size = 4, space = 'global'} : buffer<f32, global>",
        "lives in shared or local",
    ),
    "load another type": ("%0 = load %x, %n {type = i32} : i32", "cannot read"),
    "load at a float": ("%0 = load %x, %a {type = f32} : f32", "not an index"),
    "load mask": ("%0 = load %x, %n, %p, %l {type = line<f32, 4>} : line<f32, 4>", "is no mask"),
    "store another type": ("store %x, %n, %n", "cannot store"),
    "store mask": ("store %x, %n, %l, %p", "is no mask"),
    "atomic without value": ("%0 = atomic_add %x, %n : f32", "takes 3 operands"),
    "cas with one value": ("%0 = atomic_cas %x, %n, %a : f32", "takes 4 operands"),
    "misalignment": ("%0 = misalignment %x, %n {bytes = 0} : index", "positive size"),
    "get of a value": ("%0 = get %a : f32", "is not a reference"),
    "set another type": ("%0 = var {type = f32} : ref<f32> set %0, %n", "differ"),
    "barrier with operands": ("sync_cube %a", "takes 0 operands"),
    "condition": ("if %a then { yield } else { yield }", "not a bool"),
    "range": ("for %a, %n, %n body(%i: index) { continue }", "not made of indices"),
    # 3. Attributes
    "unknown attribute": ("%0 = add %a, %a {fast = true} : f32", "not in the table"),
    # 4. Regions
    "no terminator": (IF.format("sync_cube", "yield"), "must be the last"),
    "empty region": (IF.format("", "yield"), "has no terminator"),
    "terminator inside": ("return sync_cube", "must be the last"),
    # 5. Terminators
    "yield outside": ("yield", "is not inside an if"),
    "yield in a loop": ("loop body { yield }", "is not inside an if"),
    "break outside": (IF.format("break", "yield"), "is not inside a loop"),
    "continue outside": (IF.format("continue", "yield"), "is not inside a loop"),
    "yield too little": (IF.format("yield", "yield %a") + " -> %0 : f32", "carries ()"),
    "yield another type": (IF.format("yield %n", "yield %a") + " -> %0 : f32", "carries (index,)"),
    "break too much": ("loop body { break %a }", "carries (f32,)"),
    "continue another type": (
        "loop %a body(%c: f32) { continue %n } -> %0 : f32",
        "carries (index,)",
    ),
    # 6. Arguments
    "no position": ("for %n, %n, %n body { continue }", "do not match"),
    "carried type": (
        FOR.format(", %a", ", %c: index", "continue %a").replace("%n , ", "%n, ") + " -> %0 : f32",
        "do not match",
    ),
    "arguments of an if": ("if %p then(%c: f32) { yield } else { yield }", "take no arguments"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_refused(name: str) -> None:
    text, expected = BROKEN[name]
    text = text.replace(" set ", "\nset ").replace("return sync", "return\nsync")
    assert expected in messages(parse_kernel(f"{HEAD}{text}\n{RETURN}}}"))


# 1. Definitions: the parser refuses these in text


def test_use_before_definition() -> None:
    value = Value(f32, "late")
    op = Op(ops.NEG, (value,), {}, (Value(f32),))
    assert "uses %late before its definition" in messages(kernel(op, Op(ops.RETURN)))


def test_use_of_a_value_from_inside_a_region() -> None:
    p, inner = (
        Param(Value(ops.UNIT_POS.rule([], {"axis": "x"})[0]), "n", Scalar()),
        Value(index, "in"),
    )
    body = Region((), (Op(ops.UNIT_POS, (), {"axis": "x"}, (inner,)), Op(ops.BREAK)))
    use = Op(ops.NEG, (inner,), {}, (Value(index),))
    broken = kernel(Op(ops.LOOP, (), {}, (), (body,)), use, Op(ops.RETURN), params=(p,))
    assert "uses %in before" in messages(broken)


@pytest.mark.parametrize("siblings", [False, True])
def test_double_definition(siblings: bool) -> None:
    op = Op(ops.UNIT_POS, (), {"axis": "x"}, (Value(index, "twice"),))
    if siblings:
        loop = [Op(ops.LOOP, (), {}, (), (Region((), (op, Op(ops.BREAK))),)) for _ in range(2)]
        broken = kernel(*loop, Op(ops.RETURN))
    else:
        broken = kernel(op, op, Op(ops.RETURN))
    assert "%twice is defined twice" in messages(broken)


def test_double_parameter() -> None:
    param = Param(Value(index, "n"), "x", Extent())
    assert "defined twice" in messages(kernel(Op(ops.RETURN), params=(param, param)))


def test_wrong_number_of_regions() -> None:
    assert "has 0 regions, not 1" in messages(kernel(Op(ops.LOOP), Op(ops.RETURN)))


def test_empty_kernel() -> None:
    assert "has no terminator" in messages(kernel())


def test_all_failures_are_collected() -> None:
    text = f"{HEAD}%0 = add %a, %n : f32\n%1 = sub %a, %n : f32\n{RETURN}}}"
    found = messages(parse_kernel(text))
    assert "add:" in found
    assert "sub:" in found


def test_valid_kernels_pass_unchanged() -> None:
    valid = parse_kernel(f"{HEAD}{RETURN}}}")
    typed: set[Op] = set()
    assert verify(valid) is verify(valid, "again", typed) is valid
    assert typed == set(valid.body.ops)
