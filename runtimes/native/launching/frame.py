"""What the routines of the native executor share: where things lie, and small statements."""

from __future__ import annotations

from cubepy.runtimes.native.launching.tables import (
    MAX_LEAVES,
    MAX_RANK,
    RULE_WORDS,
    Context,
    Leaf,
    Plan,
)
from cubepy.runtimes.native.words import Operand, Routine, Value

LAUNCH, BOUND, PROGRAM = "cubepy_launch", "cubepy_bound", "cubepy_program"
GUARDED = "cubepy_guarded"
CONTEXT = "cubepy_launch_context"
TYPE_OF = 8
"""Where objects keep their type; the following are places in objects too, checked by `executor`."""
TUPLE_SIZE, BYTES_ITEMS, NUMBER_VALUE = 16, 32, 16
TUPLE_ITEMS = tuple.__basicsize__
"""Behind the size, and from Python 3.14 on behind the hash."""
ARRAY_DATA, ARRAY_RANK, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_DTYPE, ARRAY_FLAGS = (
    16,
    24,
    32,
    40,
    56,
    64,
)
TUPLE_FLAGS, TUPLE_SUBCLASS = 168, 1 << 26
NUMPY_WRITEABLE = 0x400
EQUAL = 2
OFFSET_FLAG = -(1 << 63)

LEAF_BYTES = Leaf.SIZE * 8
FRAME_HEAD = 8
LEAVES_AT = 8 * FRAME_HEAD
AXES_BYTES = 3 * MAX_RANK * 8
"""Of a leaf: strides in elements, strides in bytes, extents. They are copies: an array may be given
another shape by a thread that runs while an attribute or a tensor is read."""
STRIDES_AT = LEAVES_AT + MAX_LEAVES * LEAF_BYTES
OWNED_AT = STRIDES_AT + MAX_LEAVES * AXES_BYTES
FRAME_WORDS = (OWNED_AT + MAX_LEAVES * 8) // 8
COUNT, OWNED, TABLE, RAISED, DATA, MEMO = 0, 1, 2, 3, 4, 5
"""Words of a frame: leaves that were read, references that are owned, the table, whether an
exception is to be raised, the object with the table's data, and the bound launch that remembers
what is launched, or 0."""

DECLARATIONS = """
declare i32 @PyContextVar_Get(i64, i64, i64)
declare i64 @PyObject_Vectorcall(i64, i64, i64, i64)
declare i64 @PyObject_VectorcallMethod(i64, i64, i64, i64)
declare i64 @PyLong_AsLongLongAndOverflow(i64, ptr)
declare i64 @PyLong_FromLongLong(i64)
declare i64 @PyDict_GetItemWithError(i64, i64)
declare i64 @PyObject_GetAttr(i64, i64)
declare i64 @PyCell_Get(i64)
declare i64 @PyModule_GetDict(i64)
declare i64 @PyFunction_GetCode(i64)
declare i64 @PyFunction_GetGlobals(i64)
declare i64 @PyFunction_GetDefaults(i64)
declare i64 @PyFunction_GetKwDefaults(i64)
declare i64 @PyFunction_GetClosure(i64)
declare i32 @PyObject_RichCompareBool(i64, i64, i32)
declare i64 @PyBytes_FromStringAndSize(i64, i64)
declare i64 @PyMem_Malloc(i64)
declare void @PyMem_Free(i64)
declare i64 @PyErr_NoMemory()
declare i64 @PyType_GenericAlloc(i64, i64)
declare void @PyErr_Clear()
declare i64 @PyErr_Occurred()
declare void @PyErr_Restore(i64, i64, i64)
declare void @PyErr_SetNone(i64)
declare i32 @PyErr_ExceptionMatches(i64)
declare i64 @PyEval_SaveThread()
declare void @PyEval_RestoreThread(i64)
declare void @Py_IncRef(i64)
declare void @Py_DecRef(i64)
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.readcyclecounter()
declare double @llvm.fabs.f64(double)
"""


def context(f: Routine, which: Context) -> Value:
    return f.address(CONTEXT)[which]


def is_tensor(f: Routine, cls: Value) -> Value:
    """Whether a class is one of torch's that are read, 0 or 1."""
    found = f.truth(cls.equals(context(f, Context.TENSOR)))
    return found | f.truth(cls.equals(context(f, Context.PARAMETER)))


def leaf_at(frame: Value, k: Operand) -> Value:
    """The address of a leaf of a frame."""
    return frame + LEAVES_AT + frame.routine.word(k) * LEAF_BYTES


def rule_at(plan: Value, k: Operand) -> Value:
    """The address of a rule of a plan."""
    return plan + plan[Plan.LEAVES_AT] + plan.routine.word(k) * (RULE_WORDS * 8)


def call_void(f: Routine, name: str, value: Value | None = None) -> None:
    f.line(f"call void @{name}({'' if value is None else f'i64 {value.text}'})")


def _forget_error() -> Routine:
    """(frame): an exception that Python's half will raise again is forgotten, if there is one;
    others, such as a KeyboardInterrupt, are left to be raised."""
    f = Routine("forget_error", 1)
    (frame,) = f.parameters
    f.refuse(f.invoke("PyErr_Occurred").equals(0))
    error = context(f, Context.EXCEPTION)
    usual = f.value("i32", f"call i32 @PyErr_ExceptionMatches(i64 {error.text})")
    is_usual = f.value("i1", f"icmp ne i32 {usual.text}, 0")
    with f.when(is_usual):
        call_void(f, "PyErr_Clear")
        f.leave(0)
    frame.store(1, RAISED * 8)
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (_forget_error(),)
