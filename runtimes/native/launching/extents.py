"""What follows from arrays' extents: overlaps, and how many cubes there are."""

from __future__ import annotations

from cubepy.runtimes.native.launching.frame import BYTES_ITEMS, COUNT, context, leaf_at, rule_at
from cubepy.runtimes.native.launching.tables import (
    HUGE,
    IS_LINE,
    IS_WRITTEN,
    LINEAR,
    Collapse,
    Context,
    Grid,
    Kind,
    Leaf,
    Plan,
)
from cubepy.runtimes.native.words import Routine, Value


def _nests() -> Routine:
    """(leaf): whether no two elements of an array share an address, by the rule of Python's half:
    axes in the order of their strides reach over each other."""
    f = Routine("nests", 1, is_inlined=True)
    (leaf,) = f.parameters
    f.refuse((leaf[Leaf.CLASS] & LINEAR).differs(0), 1)
    f.refuse(leaf[Leaf.ELEMENTS].equals(0), 1)
    rank, shape, strides = leaf[Leaf.RANK], leaf[Leaf.SHAPE_AT], leaf[Leaf.STRIDES_AT]
    done, reach = f.local(), f.local(1)
    with f.times(rank):
        best, place = f.local(-1), f.local()
        with f.times(rank) as k:
            stride = strides[k].most(f.word(0) - strides[k])
            taken = f.truth(((f.word(1) << k) & done.get()).differs(0))
            wanted = f.truth(shape[k] > 1) & (taken ^ 1)
            nearer = f.truth(best.get() < 0) | f.truth(stride < best.get())
            is_it = (wanted & nearer).differs(0)
            best.set(f.choose(is_it, stride, best.get()))
            place.set(f.choose(is_it, k, place.get()))
        with f.when(best.get() >= 0):
            f.refuse(best.get() < reach.get())
            k = place.get()
            done.set(done.get() | f.word(1) << k)
            reach.set(reach.get() + best.get() * (shape[k] - 1))
    f.leave(1)
    return f


def _apart() -> Routine:
    """(frame, plan): 1 where no written array meets another, 2 where one is given twice, 0 for
    anything else."""
    f = Routine("apart", 2, is_inlined=True)
    frame, plan = f.parameters
    found, count = f.local(1), frame[COUNT]
    with f.times(count) as k:
        rule = rule_at(plan, k)
        with f.when(rule[IS_WRITTEN].differs(0)):
            leaf = leaf_at(frame, k)
            f.refuse(f.invoke("nests", leaf).equals(0))
            low, high = leaf[Leaf.LOW], leaf[Leaf.HIGH]
            with f.times(count) as j:
                other = leaf_at(frame, j)
                is_array = f.truth(other[Leaf.KIND].equals(Kind.ARRAY))
                is_array = is_array | f.truth(other[Leaf.KIND].equals(Kind.MAP))
                with f.when(is_array.differs(0)):
                    meets = f.truth(other[Leaf.LOW] < high) & f.truth(other[Leaf.HIGH] > low)
                    filled = f.truth(other[Leaf.LOW] < other[Leaf.HIGH]) & f.truth(low < high)
                    with f.when((meets & filled & f.truth(j.differs(k))).differs(0)):
                        f.refuse(leaf[Leaf.VALUE].differs(other[Leaf.VALUE]))
                        f.refuse(((leaf[Leaf.CLASS] ^ other[Leaf.CLASS]) & 0xFFFF).differs(0))
                        with f.times(leaf[Leaf.RANK]) as axis:
                            f.refuse(leaf[Leaf.SHAPE_AT][axis].differs(other[Leaf.SHAPE_AT][axis]))
                            mine, its = leaf[Leaf.BYTE_STRIDES_AT], other[Leaf.BYTE_STRIDES_AT]
                            f.refuse(mine[axis].differs(its[axis]))
                        found.set(2)
    f.leave(found.get())
    return f


def _count() -> Routine:
    """(plan, shape, rank, line axis or -1, counts): the cubes that cover a shape, as
    `jit.grid.cover` counts them; 0 to give up."""
    f = Routine("count", 5)
    plan, shape, rank, axis, counts = f.parameters
    width, by_axes = plan[Plan.WIDTH], plan[Plan.AXES]
    x, y, z = f.local(1), f.local(1), f.local(1)
    with f.times(rank) as k:
        n = shape[k]
        held = f.local(n)
        with f.when(k.equals(axis)):  # divisions take longer than all else here
            held.set((n + width - 1).over(width))
        lines = held.get()
        f.refuse(lines > HUGE)
        back = rank - 1 - k
        is_x = f.truth(by_axes.equals(0)) | f.truth(back.equals(0))
        is_y = (is_x ^ 1) & f.truth(back.equals(1))
        is_z = (is_x ^ 1) & (is_y ^ 1)
        for part, is_it in ((x, is_x), (y, is_y), (z, is_z)):
            part.set(f.choose(is_it.differs(0), part.get() * lines, part.get()))
            f.refuse(part.get() > HUGE)
    for place, (part, by) in enumerate(
        ((x, Plan.DIVISOR_X), (y, Plan.DIVISOR_Y), (z, Plan.DIVISOR_Z))
    ):
        with f.when(plan[by] > 1):
            part.set((part.get() + plan[by] - 1).over(plan[by]))
        counts.store(part.get(), place * 8)
    f.leave(1)
    return f


def count_cubes(f: Routine, frame: Value, plan: Value, launcher: Value, counts: Value) -> None:
    """The cube count of a launch; leaves the routine with 0 to give up."""
    cells = launcher.load(context(f, Context.CELLS)) + BYTES_ITEMS
    with f.when(plan[Plan.GRID].equals(Grid.FIXED)):
        for k in range(3):
            counts.store(cells[k], k * 8)
    with f.when(plan[Plan.GRID].equals(Grid.SHAPE)):
        f.refuse(f.invoke("count", plan, cells + 8, cells[0], -1, counts).equals(0))
    with f.when(plan[Plan.GRID].equals(Grid.ARRAY)):
        number, what = frame[COUNT], launcher.load(context(f, Context.WHAT))
        with f.times(number) as k:
            f.refuse(leaf_at(frame, k)[Leaf.OBJECT].equals(what))
        is_read = f.invoke("read", frame, what, 1)
        frame.store(number, COUNT * 8)
        f.refuse(is_read.equals(0))
        leaf = leaf_at(frame, number)
        f.refuse(leaf[Leaf.KIND].differs(Kind.ARRAY))
        args = plan, leaf[Leaf.SHAPE_AT], leaf[Leaf.RANK], -1, counts
        f.refuse(f.invoke("count", *args).equals(0))
    with f.when(plan[Plan.GRID].equals(Grid.ARGUMENT)):
        which, what = plan[Plan.GRID_LEAF], launcher.load(context(f, Context.WHAT))
        leaf = leaf_at(frame, which)
        f.refuse(leaf[Leaf.OBJECT].differs(what))
        rule = rule_at(plan, which)
        with f.times(frame[COUNT]) as k:  # where it is given twice, both must count alike
            same = f.truth(leaf_at(frame, k)[Leaf.OBJECT].equals(what))
            unlike = f.truth(rule_at(plan, k)[IS_LINE].differs(rule[IS_LINE]))
            f.refuse((same & unlike).differs(0))
        is_line = f.truth(rule[IS_LINE].differs(0)) & f.truth(plan[Plan.WIDTH] > 1)
        with f.when(
            (is_line & f.truth(plan[Plan.COLLAPSE].equals(Collapse.SAME_SHAPES))).differs(0)
        ):
            held = f.room(1)
            held.store(leaf[Leaf.ELEMENTS])
            f.refuse(f.invoke("count", plan, held, 1, 0, counts).equals(0))
        with f.when(
            (is_line & f.truth(plan[Plan.COLLAPSE].equals(Collapse.SAME_SHAPES))).equals(0)
        ):
            axis = ((leaf[Leaf.CLASS] >> 16) & 0xFF) - 1
            on = f.choose(is_line.differs(0), axis, -1)
            args = plan, leaf[Leaf.SHAPE_AT], leaf[Leaf.RANK], on, counts
            f.refuse(f.invoke("count", *args).equals(0))
    is_fixed = plan[Plan.GRID].equals(Grid.FIXED)
    for k, by in enumerate((Plan.CLUSTER_X, Plan.CLUSTER_Y, Plan.CLUSTER_Z)):
        with f.when(plan[by] > 1):
            whole = (counts[k] + plan[by] - 1).over(plan[by]) * plan[by]
            f.refuse((f.truth(whole.differs(counts[k])) & f.truth(is_fixed)).differs(0))
            counts.store(whole, k * 8)
    for k, most in enumerate((Plan.MAX_X, Plan.MAX_Y, Plan.MAX_Z)):
        f.refuse(counts[k] > plan[most])
        f.refuse(counts[k] > HUGE)


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _nests(),
        _apart(),
        _count(),
    )
