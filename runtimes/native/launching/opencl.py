"""Launches on OpenCL devices: the arguments of a kernel object that only native code uses, then the
queue. The GIL is held meanwhile, so that no other thread sets arguments between them."""

from __future__ import annotations

from cubepy.runtimes.native.launching.enqueuing import status_of
from cubepy.runtimes.native.launching.frame import COUNT, context, leaf_at
from cubepy.runtimes.native.launching.state import IS_USED
from cubepy.runtimes.native.launching.tables import Cl, Context, Kind, Leaf, Plan
from cubepy.runtimes.native.words import Routine

_AXES = 3


def _set_arguments() -> Routine:
    """(plan, block): give a kernel object its arguments; the driver's status."""
    f = Routine("set_arguments", 2)
    plan, block = f.parameters
    device, kernel, sizes = plan[Plan.GPU], plan[Plan.ENTRY], plan + plan[Plan.SIZES_AT]
    with f.times(plan[Plan.SLOTS]) as k:
        size, status = sizes[k], f.local()
        which = ("i64", kernel), ("i32", k)
        with f.when(size.equals(0)):
            status.set(status_of(f, device[Cl.SET_POINTER], *which, ("i64", block[k])))
        with f.when(size.differs(0)):
            number = ("i64", size), ("i64", block + k * 8)
            status.set(status_of(f, device[Cl.SET_NUMBER], *which, *number))
        f.refuse(status.get().differs(0), status.get())
    f.leave(0)
    return f


def _run_on_opencl() -> Routine:
    """(frame, plan, block, count): put a launch into the device's queue; 1, 0 where Python is to
    launch, -1 for an exception."""
    f = Routine("run_on_opencl", 4)
    frame, plan, block, count = f.parameters
    device = plan[Plan.GPU]
    with f.times(frame[COUNT]) as k:
        leaf = leaf_at(frame, k)
        with f.when(leaf[Leaf.KIND].equals(Kind.ARRAY)):
            owner = leaf[Leaf.OWNER].load(context(f, Context.DYING_OF))
            f.refuse(owner.differs(device[Cl.OWNER]))
            f.refuse(leaf[Leaf.VALUE].equals(0))
    status = f.invoke("enqueue_on_opencl", plan, block, count)
    f.refuse(status.equals(0), 1)
    f.leave(f.invoke("refused", plan[Plan.LOADED], status))
    return f


def _enqueue() -> Routine:
    """(plan, block, count): put a launch into the device's queue; the driver's status."""
    f = Routine("enqueue_on_opencl", 3)
    plan, block, count = f.parameters
    device = plan[Plan.GPU]
    plan[Plan.STATE].store(1, IS_USED * 8)
    f.refuse(count.equals(0))
    status = f.local(f.invoke("set_arguments", plan, block))
    with f.when(status.get().equals(0)):
        sizes, counts = f.room(2 * _AXES), block + plan[Plan.SLOTS] * 8
        for k, dim in enumerate((Plan.DIM_X, Plan.DIM_Y, Plan.DIM_Z)):
            sizes.store(counts[k] * plan[dim], k * 8)
            sizes.store(plan[dim], (k + _AXES) * 8)
        grid = ("i32", _AXES), ("i64", 0), ("i64", sizes), ("i64", sizes + _AXES * 8)
        nothing = ("i32", 0), ("i64", 0), ("i64", 0)
        launch = ("i64", device[Cl.QUEUE]), ("i64", plan[Plan.ENTRY]), *grid, *nothing
        status.set(status_of(f, device[Cl.ENQUEUE], *launch))
    f.leave(status.get())
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return _set_arguments(), _enqueue(), _run_on_opencl()
