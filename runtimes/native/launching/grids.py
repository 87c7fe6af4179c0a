"""From a kernel to a launcher: `kernel[count, dim]` and `kernel.over(what)`.

What was asked for before is found again; over an array a new launcher is made, which is cheap
because it keeps nothing but the array. Everything else is Python's.
"""

from __future__ import annotations

from cubepy.runtimes.native.launching.frame import (
    TUPLE_ITEMS,
    TUPLE_SIZE,
    TYPE_OF,
    call_void,
    context,
    is_tensor,
)
from cubepy.runtimes.native.launching.tables import Context
from cubepy.runtimes.native.words import Routine, Value

GETITEM, OVER = "cubepy_getitem", "cubepy_over"
ENTRY_AT = 16
"""Where launchers keep the address of their code; see `callables`."""


def _are_numbers() -> Routine:
    """(object): whether it is an int or a tuple of them, and of no other class: 1.0 and True are
    equal to 1, but not the same grid."""
    f = Routine("are_numbers", 1)
    (obj,) = f.parameters
    cls, number = obj.load(TYPE_OF), context(f, Context.INT)
    f.refuse(cls.equals(number), 1)
    f.refuse(cls.differs(context(f, Context.TUPLE)))
    with f.times(obj.load(TUPLE_SIZE)) as k:
        f.refuse((obj + TUPLE_ITEMS)[k].load(TYPE_OF).differs(number))
    f.leave(1)
    return f


def _found() -> Routine:
    """(dictionary, key): the value, owned; 0 if there is none."""
    f = Routine("found", 2)
    known, key = f.parameters
    f.refuse(known.equals(0))
    f.refuse(known.load(TYPE_OF).differs(context(f, Context.DICT)))
    value = f.invoke("PyDict_GetItemWithError", known, key)
    with f.when(value.equals(0)):
        call_void(f, "PyErr_Clear")
        f.leave(0)
    call_void(f, "Py_IncRef", value)
    f.leave(value)
    return f


def _recent() -> Routine:
    """(kernel, pair): the launcher that was found last, owned, if that was for the same objects,
    which are what they were: ints, or tuples of them; else 0."""
    f = Routine("recent", 2)
    kernel, grid = f.parameters
    known, value = (kernel.load(context(f, c)) for c in (Context.RECENT_GRID, Context.RECENT))
    f.refuse(known.equals(0))
    f.refuse(known.equals(context(f, Context.NONE)))
    f.refuse(grid.load(TUPLE_ITEMS).differs(known.load(TUPLE_ITEMS)))
    f.refuse(grid.load(TUPLE_ITEMS + 8).differs(known.load(TUPLE_ITEMS + 8)))
    call_void(f, "Py_IncRef", value)
    f.leave(value)
    return f


def _found_by_pair() -> Routine:
    """(kernel, pair): the launcher that is kept for it, owned, and noted; 0 if there is none."""
    f = Routine("found_by_pair", 2)
    kernel, grid = f.parameters
    with f.times(2) as k:
        f.refuse(f.invoke("are_numbers", (grid + TUPLE_ITEMS)[k]).equals(0))
    value = f.invoke("found", kernel.load(context(f, Context.LAUNCHERS)), grid)
    f.refuse(value.equals(0))
    # The end of a grid runs no code, so that none sees it beside another's launcher.
    for place, new in ((Context.RECENT_GRID, grid), (Context.RECENT, value)):
        call_void(f, "Py_IncRef", new)
        f.invoke("replaced", kernel + context(f, place), new)
    f.leave(value)
    return f


def _replaced() -> Routine:
    """(address, object): an owned reference is stored, and the one before it is given up."""
    f = Routine("replaced", 2)
    place, new = f.parameters
    old = place.load()
    place.store(new)
    with f.when(old.differs(0)):
        call_void(f, "Py_DecRef", old)
    f.leave(0)
    return f


def _getitem() -> Routine:
    """A method of one argument: (kernel, grid)."""
    f = Routine(GETITEM, 2, is_exported=True)
    kernel, grid = f.parameters
    is_tuple = grid.load(TYPE_OF).equals(context(f, Context.TUPLE))
    with f.when(is_tuple), f.when(grid.load(TUPLE_SIZE).equals(2)):
        for way in ("recent", "found_by_pair"):
            value = f.invoke(way, kernel, grid)
            f.refuse(value.differs(0), value)
    args = f.room(3)
    args.store(kernel, 8)
    args.store(grid, 16)
    f.leave(f.invoke("PyObject_Vectorcall", context(f, Context.GETITEM), args + 8, 2, 0))
    return f


def _over() -> Routine:
    """A method: (kernel, args, how many are positional, names of keywords)."""
    f = Routine(OVER, 4, is_exported=True)
    kernel, args, count, keywords = f.parameters
    with f.when((f.truth(count.equals(1)) & f.truth(keywords.equals(0))).differs(0)):
        what = args[0]
        with f.when(f.invoke("are_numbers", what).differs(0)):
            value = f.invoke("found", kernel.load(context(f, Context.COVERS)), what)
            f.refuse(value.differs(0), value)
        table = kernel.load(context(f, Context.KERNEL_TABLE))
        known = f.truth(table.differs(0)) & f.truth(table.differs(context(f, Context.NONE)))
        with f.when((known & _is_array(f, what.load(TYPE_OF))).differs(0)):
            f.leave(f.invoke("made", kernel, table, what))
    f.leave(f.invoke("general", context(f, Context.OVER), kernel, args, count, keywords))
    return f


def _is_array(f: Routine, cls: Value) -> Value:
    found = f.truth(cls.equals(context(f, Context.NDARRAY)))
    found = found | f.truth(cls.equals(context(f, Context.ARRAY)))
    found = found | f.truth(cls.equals(context(f, Context.CUPY)))
    return found | is_tensor(f, cls)


def _made() -> Routine:
    """(kernel, table, array): a new launcher over an array."""
    f = Routine("made", 3)
    kernel, table, what = f.parameters
    launcher = f.invoke("PyType_GenericAlloc", context(f, Context.LAUNCHER), 0)
    f.refuse(launcher.equals(0))
    launcher.store(context(f, Context.ENTRY), ENTRY_AT)
    none = context(f, Context.NONE)
    for place, value in (
        (Context.KERNEL, kernel),
        (Context.TABLE, table),
        (Context.WHAT, what),
        (Context.CELLS, none),
        (Context.GRID, none),
    ):
        call_void(f, "Py_IncRef", value)
        launcher.store(value, context(f, place))
    f.leave(launcher)
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _are_numbers(),
        _found(),
        _recent(),
        _found_by_pair(),
        _replaced(),
        _getitem(),
        _made(),
        _over(),
    )
