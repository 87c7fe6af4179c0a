"""Whether a launch is one that a plan holds for."""

from __future__ import annotations

from cubepy.ir.core import NARROW_LIMIT
from cubepy.runtimes.native.launching.extents import count_cubes
from cubepy.runtimes.native.launching.frame import (
    COUNT,
    EQUAL,
    NUMBER_VALUE,
    TUPLE_ITEMS,
    TUPLE_SIZE,
    TYPE_OF,
    call_void,
    context,
    leaf_at,
    rule_at,
)
from cubepy.runtimes.native.launching.tables import (
    CAPTURE_WORDS,
    HUGE,
    IS_LINE,
    LINEAR,
    MAP_UNIT,
    Capture,
    Collapse,
    Context,
    Head,
    Kind,
    Leaf,
    Plan,
    Rule,
)
from cubepy.runtimes.native.words import Routine, Value


def _is_as_before() -> Routine:
    """(table): whether settings and the function's parameters are those of the table, which is
    never made where a block of settings chooses what code depends on."""
    f = Routine("is_as_before", 1, is_inlined=True)
    (table,) = f.parameters
    held = f.room(1)
    held.store(0)
    variable = context(f, Context.OVERRIDES)
    f.value("i32", f"call i32 @PyContextVar_Get(i64 {variable.text}, i64 0, i64 {held.text})")
    chosen = held[0]
    f.refuse(chosen.equals(0))
    call_void(f, "Py_DecRef", chosen)  # the context keeps it
    with f.when(chosen.differs(context(f, Context.NONE))):
        for which in (Context.CHECKED, Context.OPT_LEVEL):
            found = f.invoke("PyDict_GetItemWithError", chosen, context(f, which))
            f.refuse(found.differs(0))
    f.refuse(context(f, Context.GENERATION).load().differs(table[Head.GENERATION]))
    function = table[Head.FUNCTION]
    f.refuse(function.equals(0), 1)
    f.refuse(f.invoke("PyFunction_GetCode", function).differs(table[Head.CODE]))
    f.refuse(f.invoke("PyFunction_GetDefaults", function).differs(table[Head.DEFAULTS]))
    f.refuse(f.invoke("PyFunction_GetKwDefaults", function).differs(table[Head.KWDEFAULTS]))
    f.leave(1)
    return f


def _same_value() -> Routine:
    """(object, other): whether they are one object, or numbers or strings of one type that are
    equal, bit for bit."""
    f = Routine("same_value", 2, is_inlined=True)
    found, wanted = f.parameters
    f.refuse(found.equals(wanted), 1)
    cls = found.load(TYPE_OF)
    f.refuse(cls.differs(wanted.load(TYPE_OF)))
    with f.when(cls.equals(context(f, Context.FLOAT))):
        f.leave(f.truth(found.load(NUMBER_VALUE).equals(wanted.load(NUMBER_VALUE))))
    exact = f.truth(cls.equals(context(f, Context.INT)))
    exact = exact | f.truth(cls.equals(context(f, Context.STR)))
    f.refuse(exact.equals(0))
    text = f"call i32 @PyObject_RichCompareBool(i64 {found.text}, i64 {wanted.text}, i32 {EQUAL})"
    same = f.value("i32", text)
    f.leave(f.value("i64", f"zext i1 {f.value('i1', f'icmp eq i32 {same.text}, 1').text} to i64"))
    return f


def _rule_holds() -> Routine:
    """(plan, rule, leaf): whether a value is what the plan is for."""
    f = Routine("rule_holds", 3, is_inlined=True)
    plan, rule, leaf = f.parameters
    which = rule[0]
    with f.when(which.equals(Rule.ARRAY)):
        f.refuse(leaf[Leaf.KIND].differs(Kind.ARRAY))
        f.leave(f.truth(((leaf[Leaf.CLASS] ^ rule[1]) & rule[2]).equals(0)))
    f.refuse(leaf[Leaf.KIND].equals(Kind.ARRAY))
    same_type = leaf[Leaf.TYPE].equals(rule[1])
    with f.when(which.equals(Rule.NUMBER)):
        f.refuse(leaf[Leaf.TYPE].differs(rule[1]))
        f.refuse(leaf[Leaf.KIND].equals(Kind.OTHER))
        value = leaf[Leaf.VALUE]
        is_small = f.truth(value >= 0) & f.truth(value <= NARROW_LIMIT)
        f.leave(f.truth(rule[2].equals(2)) | f.truth(rule[2].equals(is_small)))
    with f.when(which.equals(Rule.VALUE)):
        f.leave(f.truth(same_type) & f.truth(leaf[Leaf.VALUE].equals(rule[2])))
    with f.when(which.equals(Rule.SAME)):
        f.leave(f.truth(leaf[Leaf.OBJECT].equals(rule[1])))
    with f.when(which.equals(Rule.TEXT)):
        f.leave(f.invoke("same_value", leaf[Leaf.OBJECT], rule[1]))
    with f.when(which.equals(Rule.STRUCT)):
        f.refuse(leaf[Leaf.KIND].differs(Kind.STRUCT))
        f.leave(f.truth(same_type) & f.truth(leaf[Leaf.VALUE].equals(rule[2])))
    with f.when(which.equals(Rule.MAP)):
        f.leave(f.invoke("map_holds", plan, rule, leaf))
    f.refuse(leaf[Leaf.TYPE].differs(rule[1]))
    f.leave(f.invoke("function_holds", plan, rule, leaf[Leaf.OBJECT]))
    return f


def _map_holds() -> Routine:
    """(plan, rule, leaf): whether a tensor map is like the plan's, of an array of the same layout
    at an address that the copy engine takes."""
    f = Routine("map_holds", 3)
    plan, rule, leaf = f.parameters
    f.refuse(leaf[Leaf.KIND].differs(Kind.MAP))
    f.refuse(((leaf[Leaf.CLASS] ^ rule[1]) & rule[2]).differs(0))
    f.refuse((leaf[Leaf.VALUE] & (MAP_UNIT - 1)).differs(0))
    given, box = leaf[Leaf.OBJECT].load(context(f, Context.MAP_BOX)), rule[3]
    with f.when(given.differs(box)):
        f.refuse(given.load(TYPE_OF).differs(box.load(TYPE_OF)))
        size = box.load(TUPLE_SIZE)
        f.refuse(given.load(TUPLE_SIZE).differs(size))
        with f.times(size) as k:
            items = (given + TUPLE_ITEMS)[k], (box + TUPLE_ITEMS)[k]
            f.refuse(f.invoke("same_value", *items).equals(0))
    swizzle = leaf[Leaf.OBJECT].load(context(f, Context.MAP_SWIZZLE))
    f.refuse(f.invoke("same_value", swizzle, rule[4]).equals(0))
    f.refuse(leaf[Leaf.OBJECT].load(context(f, Context.MAP_PIXELS)).differs(rule[5]))
    rank, wanted = leaf[Leaf.RANK], plan + rule[6]
    with f.times(rank) as k:
        f.refuse(leaf[Leaf.SHAPE_AT][k].differs(wanted[k]))
        f.refuse(leaf[Leaf.BYTE_STRIDES_AT][k].differs(wanted[rank + k]))
    f.leave(1)
    return f


def _function_holds() -> Routine:
    """(plan, rule, function): whether it has the code, globals, defaults and captured values."""
    f = Routine("function_holds", 3)
    plan, rule, function = f.parameters
    f.refuse(f.invoke("PyFunction_GetCode", function).differs(rule[2]))
    f.refuse(f.invoke("PyFunction_GetGlobals", function).differs(rule[3]))
    f.refuse(f.invoke("PyFunction_GetKwDefaults", function).differs(0))
    values = plan + rule[6]
    defaults = f.invoke("PyFunction_GetDefaults", function)
    _require_size(f, defaults, rule[4])
    with f.times(rule[4]) as k:
        given = (defaults + TUPLE_ITEMS)[k]
        f.refuse(f.invoke("same_value", given, values[k]).equals(0))
    closure = f.invoke("PyFunction_GetClosure", function)
    _require_size(f, closure, rule[5])
    with f.times(rule[5]) as k:
        found = f.invoke("PyCell_Get", (closure + TUPLE_ITEMS)[k])
        f.refuse(found.equals(0))
        same = f.invoke("same_value", found, values[rule[4] + k])
        call_void(f, "Py_DecRef", found)
        f.refuse(same.equals(0))
    f.leave(1)
    return f


def _require_size(f: Routine, items: Value, size: Value) -> None:
    """Leave with 0 unless a tuple has so many items, or there is none and it needs none."""
    found = f.local()
    with f.when(items.differs(0)):
        found.set(items.load(TUPLE_SIZE))
    f.refuse(found.get().differs(size))


def _capture_holds() -> Routine:
    """(frame, capture): whether a captured name is bound to the same value."""
    f = Routine("capture_holds", 2, is_inlined=True)
    frame, row = f.parameters
    items = f.local(row[1])
    with f.when(row[0].equals(Capture.MODULE)):
        f.refuse(row[1].load(TYPE_OF).differs(context(f, Context.MODULE)))
        items.set(f.invoke("PyModule_GetDict", row[1]))
    is_item = f.truth(row[0].equals(Capture.ITEM)) | f.truth(row[0].equals(Capture.MODULE))
    with f.when(is_item.differs(0)):
        found = f.invoke("PyDict_GetItemWithError", items.get(), row[2])
        with f.when(found.equals(0)):
            call_void(f, "PyErr_Clear")
            f.leave(0)
        f.leave(f.invoke("same_value", found, row[3]))
    with f.when(row[0].equals(Capture.ABSENT)):
        f.leave(f.truth(f.invoke("PyDict_GetItemWithError", row[1], row[2]).equals(0)))
    found = f.local()
    with f.when(row[0].equals(Capture.CELL)):
        found.set(f.invoke("PyCell_Get", row[1]))
        f.refuse(found.get().equals(0))
    with f.when(row[0].equals(Capture.ATTRIBUTE)):
        found.set(f.invoke("PyObject_GetAttr", row[1], row[2]))
    held = found.get()
    with f.when(held.equals(0)):
        f.leave(f.invoke("forget_error", frame))
    same = f.invoke("same_value", held, row[3])
    call_void(f, "Py_DecRef", held)
    f.leave(same)
    return f


def _shapes(f: Routine, frame: Value, plan: Value) -> None:
    """Leave with 0 where line tensors are of one shape and should not be, or the other way."""
    with f.when(plan[Plan.COLLAPSE].differs(Collapse.ANY)):
        first, same = f.local(), f.local(1)
        with f.times(frame[COUNT]) as k, f.when(rule_at(plan, k)[IS_LINE].differs(0)):
            leaf = leaf_at(frame, k)
            with f.when(first.get().equals(0)):
                first.set(leaf)
            one = first.get()
            like = f.truth(one[Leaf.RANK].equals(leaf[Leaf.RANK]))
            linear = f.truth((leaf[Leaf.CLASS] & LINEAR).differs(0))
            same.set(same.get() & like & linear)
            with f.times(leaf[Leaf.RANK].least(one[Leaf.RANK])) as axis:
                equal = one[Leaf.SHAPE_AT][axis].equals(leaf[Leaf.SHAPE_AT][axis])
                same.set(same.get() & f.truth(equal))
        wanted = f.truth(plan[Plan.COLLAPSE].equals(Collapse.SAME_SHAPES))
        f.refuse(wanted.differs(same.get()))


def _divides(f: Routine, frame: Value, plan: Value) -> None:
    """Leave with 0 where an extent along the lines is a multiple of their width and should not be,
    or the other way. A rule's third word says so: 1 a multiple, 0 not, 2 any."""
    width = plan[Plan.WIDTH]
    with f.when(width > 1), f.times(frame[COUNT]) as k:
        rule = rule_at(plan, k)
        with f.when(rule[IS_LINE].differs(0)):
            leaf = leaf_at(frame, k)
            extent = f.local(leaf[Leaf.ELEMENTS])
            with f.when(plan[Plan.COLLAPSE].differs(Collapse.SAME_SHAPES)):
                axis = ((leaf[Leaf.CLASS] >> 16) & 0xFF) - 1
                extent.set(1)
                with f.when(axis >= 0):
                    extent.set(leaf[Leaf.SHAPE_AT][axis])
            whole = f.truth(extent.get().modulo(width).equals(0))
            f.refuse(whole.differs(rule[3]))


def _matches() -> Routine:
    """(frame, plan, launcher, counts, block): whether a launch is of a plan: then the counts are
    known and the block is filled; gives its work, or -1."""
    f = Routine("matches", 5, is_inlined=True)
    frame, plan, launcher, counts, block = f.parameters
    f.refuse(plan[Plan.LEAVES].differs(frame[COUNT]))
    largest, most = f.local(), f.local()
    with f.times(frame[COUNT]) as k:
        rule, leaf = rule_at(plan, k), leaf_at(frame, k)
        f.refuse(f.invoke("rule_holds", plan, rule, leaf).equals(0))
        with f.when(leaf[Leaf.KIND].equals(Kind.ARRAY)):
            largest.set(largest.get().most(leaf[Leaf.LARGEST]))
            most.set(most.get().most(leaf[Leaf.ELEMENTS]))
    _divides(f, frame, plan)
    _shapes(f, frame, plan)
    count_cubes(f, frame, plan, launcher, counts)
    flat = counts[0] * counts[1]
    f.refuse(flat > HUGE)
    cubes = flat * counts[2]
    f.refuse(cubes > HUGE)
    units = cubes * plan[Plan.UNITS]
    number = largest.get().most(units)
    f.refuse(number <= plan[Plan.ABOVE])
    f.refuse(number > plan[Plan.LIMIT])
    is_flat = f.truth(counts[1].equals(1)) & f.truth(counts[2].equals(1))
    f.refuse(is_flat.differs(plan[Plan.FLAT]))
    apart = f.invoke("apart", frame, plan)
    f.refuse(apart.differs(f.word(2) - plan[Plan.NOALIAS]))
    captures = plan + plan[Plan.CAPTURES_AT]
    with f.times(plan[Plan.CAPTURES]) as k:
        f.refuse(f.invoke("capture_holds", frame, captures + k * (CAPTURE_WORDS * 8)).equals(0))
    f.refuse(f.invoke("fill", frame, plan, block).equals(0))
    end = block + plan[Plan.SLOTS] * 8
    for k in range(3):
        end.store(counts[k], k * 8)
    counts.store(cubes, 24)
    counts.store((units * plan[Plan.WIDTH]).most(most.get()), 32)
    f.leave(1)
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _is_as_before(),
        _same_value(),
        _map_holds(),
        _rule_holds(),
        _function_holds(),
        _capture_holds(),
        _matches(),
    )
