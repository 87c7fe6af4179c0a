"""Writes the kernel whose units are lanes: jumps and loops, which run while any lane is active."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import bool_, element_of, i32, index, u32
from cubepy.passes.lane_branches import JUMPS, LaneBranches
from cubepy.passes.lane_emitter import OpenLoop
from cubepy.passes.lane_shapes import LOOPS

SHORT = 24
"""Operations of a loop that is written twice: without masks, and for the last lanes."""


class LaneWriter(LaneBranches):
    """Writes one kernel."""

    def kernel(self) -> Kernel:
        """The kernel of lanes."""
        returns = {op for op in self._kernel.body.walk() if op.row is ops.RETURN}
        self._iota(i32)
        self._iota(index)
        if returns - self._shapes.real_returns:
            self._alive = self._var(self._line_of(bool_), "alive")
            self._set(self._alive, self._all_on())
        self._ops(self._kernel.body.ops)
        if not self._out or not self._out[-1].row.is_terminator:
            self._append(ops.RETURN)
        x, y, z = self._kernel.cube_dim
        body, cube_dim = Region((), tuple(self._out)), (x // self._lanes, y, z)
        return replace(self._kernel, body=body, cube_dim=cube_dim, plane_dim=1)

    def _op(self, op: Op) -> None:
        row = op.row
        if row is ops.IF:
            self._if(op)
        elif row in LOOPS:
            self._repeat(op)
        elif row is ops.YIELD:
            self._yields[-1](op)
        elif row in JUMPS:
            self._jump(op)
        elif row is ops.RETURN:
            self._return(op)
        else:
            self._operation(op)

    # Jumps

    def _jump(self, op: Op) -> None:
        loop = self._loops[-1]
        if loop.is_ending:
            self._carry(loop, op, self._mask)
        elif self._is_real(op):
            self._carry_together(loop, op)
            if op.row is ops.CONTINUE:
                loop.step()
            self._append(op.row)
        elif loop.live is None:
            self._carry(loop, op, None if loop.continues == 1 else self._mask)
        else:
            self._carry(loop, op, self._mask)
            if op.row is ops.BREAK:
                self._leave(loop)

    def _leave(self, loop: OpenLoop) -> None:
        """The lanes that are on leave a loop."""
        assert loop.live is not None
        self._set(loop.live, self._without(self._get(loop.live), self._mask_line()))

    def _carry_together(self, loop: OpenLoop, op: Op) -> None:
        is_break = op.row is ops.BREAK
        ends = is_break or loop.op.row is ops.FOR  # which may end behind any iteration
        for k, value in enumerate(op.operands):
            ref, result = loop.carried[k], loop.results[k]
            if (not is_break or result is ref) and value is not loop.args[k]:
                self._set(ref, self._as(value, self._shapes.stride(loop.args[k])))
            if result is not None and result is not ref and ends:
                self._set(result, self._as(value, self._shapes.stride(loop.op.results[k])))

    def _carry(self, loop: OpenLoop, op: Op, mask: Value | None) -> None:
        """What some lanes carry to the next iteration, or out of the loop.

        Lanes that have left keep what they have, if anybody asks for it.
        """
        for k, value in enumerate(op.operands):
            ref, result = loop.carried[k], loop.results[k]
            stride = self._shapes.stride(loop.args[k])
            goes_on = op.row is ops.CONTINUE
            if (goes_on or result is ref) and value is not loop.args[k]:
                is_free = goes_on and result is not ref and loop.continues == 1
                self._blend(ref, self._as(value, stride), None if is_free else mask)
            counts = goes_on and loop.op.row is ops.FOR
            if result is not None and result is not ref and (counts or not goes_on):
                self._blend(result, self._as(value, self._shapes.stride(loop.op.results[k])), mask)

    def _return(self, op: Op) -> None:
        if op in self._shapes.real_returns:
            self._append(ops.RETURN)
            return
        assert self._alive is not None
        self._set(self._alive, self._without(self._get(self._alive), self._mask_line()))
        for loop in self._loops:
            if loop.live is not None:
                self._leave(loop)

    # Loops

    def _repeat(self, op: Op) -> None:
        is_masked, only_ends = op in self._shapes.masked, self._only_ends(op)
        outer, may_be_empty = self._mask, self._may_be_empty
        has_live = is_masked and not only_ends
        live = self._var(self._line_of(bool_), "live") if has_live else None
        if live is not None:
            self._set(live, self._mask_line())
        loop = self._open(op, live)
        self._loops.append(loop)
        self._depth += int(is_masked)
        self._may_be_empty = False
        if op.row is ops.LOOP:
            self._endless(loop)
        elif only_ends:
            self._up_to_ends(loop)
        elif not is_masked or self._shapes.stride(op.regions[0].args[0]) is not None:
            self._counted(loop)
        else:
            self._counted_apart(loop)
        self._depth -= int(is_masked)
        self._loops.pop()
        self._span = op.span
        for old, ref in zip(op.results, loop.results, strict=True):
            if ref is not None:
                self._new[old] = self._get(ref)
        self._mask, self._may_be_empty = outer, may_be_empty
        self._has_left = False
        if is_masked and any(inner.row is ops.RETURN for inner in op.regions[0].walk()):
            assert self._alive is not None
            alive = self._get(self._alive)
            left = alive if outer is None else self._emit(ops.AND, outer, alive)
            self._mask = self._part_of(outer, left)
            self._has_left = True

    def _open(self, op: Op, live: Value | None) -> OpenLoop:
        """The locals of a loop, with what it starts from."""
        counted = op.row is ops.FOR
        args = op.regions[0].args[1:] if counted else op.regions[0].args
        carried: list[Value] = []
        results: list[Value | None] = []
        for arg, value, result in zip(args, op.operands[3 * counted :], op.results, strict=True):
            stride, end = self._shapes.stride(arg), self._shapes.stride(result)
            ref = self._var(self._type_as(arg), arg.name)
            self._set(ref, self._as(value, stride))
            carried.append(ref)
            if result not in self._uses:
                results.append(None)
            elif stride == end:
                results.append(ref)
            else:
                results.append(self._var(self._type_as(result), result.name))
                if counted:
                    self._set(results[-1] or ref, self._as(value, end))
        jumps = [o for o in _own_jumps(op.regions[0]) if o.row is ops.CONTINUE]
        is_soft = op in self._shapes.soft
        return OpenLoop(op, args, carried, results, live, is_soft, len(jumps))

    def _start(self, loop: OpenLoop) -> None:
        for arg, ref in zip(loop.args, loop.carried, strict=True):
            self._new[arg] = self._get(ref)

    def _body(self, loop: OpenLoop, before: Callable[[], None] | None = None) -> list[Op]:
        """An iteration; `before` is asked at its begin, and may take lanes away."""
        with self._block() as body:
            if loop.live is not None:
                self._mask = self._part_of(self._mask, self._get(loop.live))
            self._start(loop)
            if before is not None:
                before()
            left, self._has_left = self._has_left, False
            rest = loop.op.regions[0].ops
            if left:
                some = self._any(self._mask_line())
                with self._block() as block:
                    self._ops(rest)
                self._branch(some, block)
            else:
                self._ops(rest)
            self._span = loop.op.span
            if not body or not body[-1].row.is_terminator:
                self._end_iteration(loop)
        return body

    def _end_iteration(self, loop: OpenLoop) -> None:
        loop.step()
        if loop.live is not None:
            with self._block() as leave:
                self._append(ops.BREAK)
            self._branch(self._any(self._get(loop.live)), [], leave)
        self._append(ops.CONTINUE)

    def _endless(self, loop: OpenLoop) -> None:
        region = Region((), tuple(self._body(loop)))
        self._out.append(Op(ops.LOOP, (), loop.op.attrs, (), (region,), loop.op.span))

    # Loops that lanes leave by coming to their ends, and in no other way

    def _only_ends(self, op: Op) -> bool:
        """Whether lanes leave a `for` whose position they share, but for a constant distance, only
        as they come to its end."""
        if op.row is not ops.FOR or op not in self._shapes.masked:
            return False
        (body,) = op.regions
        is_shared = self._shapes.stride(body.args[0]) is not None
        jumps = list(_own_jumps(body))
        only = jumps == [body.terminator] and body.terminator.row is ops.CONTINUE
        return only and is_shared and all(o.row is not ops.RETURN for o in body.walk())

    def _up_to_ends(self, loop: OpenLoop) -> None:
        """First without masks, as long as all lanes go on, where that is known ahead."""
        op, (position, *_) = loop.op, loop.op.regions[0].args
        start, stop, step = op.operands[:3]
        first, last, by = self._scalar(start), self._scalar(stop), self._scalar(step)
        stride, is_alike = self._shapes.stride(position), self._shapes.is_alike(stop)
        outer = self._mask
        if not is_alike:
            last = self._latest(stop, first)
        elif isinstance(stride, int) and len(list(op.regions[0].walk())) <= SHORT:
            first = self._while_all_go_on(loop, (first, last, by), stride)

        def before() -> None:
            self._mask = self._both(outer, self._inside(position, stop))
            self._has_left = is_alike and outer is not None

        loop.is_ending = True
        self._for(loop, (first, last, by), before)

    def _while_all_go_on(
        self, loop: OpenLoop, bounds: tuple[Value, Value, Value], stride: int
    ) -> Value:
        """The iterations of all lanes together; gives the first that is not."""
        first, last, by = bounds
        place = self._var(first.type)
        self._set(place, first)
        loop.step = lambda: self._set(
            place, self._emit(ops.ADD, self._new[loop.op.regions[0].args[0]], by)
        )
        whole = self._emit(ops.MAX, first, last)
        before_end = self._const(first.type, stride * (self._lanes - 1))
        self._for(loop, (first, self._emit(ops.SUB, whole, before_end), by), None)
        loop.step = lambda: None
        return self._get(place)

    def _inside(self, position: Value, stop: Value) -> Value:
        """Which lanes have not come to their end."""
        is_plain = self._shapes.is_alike(stop) and position.type is index
        if is_plain and self._shapes.stride(position) == 1:
            return self._first_lanes(self._lanes_below(self._scalar(position), self._scalar(stop)))
        return self._emit(ops.LT, self._line(position), self._line(stop))

    def _for(
        self,
        loop: OpenLoop,
        bounds: tuple[Value, Value, Value],
        before: Callable[[], None] | None,
    ) -> None:
        old, outer = loop.op.regions[0].args[0], self._mask
        new = Value(old.type, old.name)
        self._lines.pop(old, None)
        self._new[old] = new
        region = Region((new,), tuple(self._body(loop, before)))
        self._out.append(Op(ops.FOR, bounds, loop.op.attrs, (), (region,), loop.op.span))
        self._mask = outer

    # Loops

    def _counted(self, loop: OpenLoop) -> None:
        """A `for` whose position lanes share, but for a constant distance."""
        op, (position, *_) = loop.op, loop.op.regions[0].args
        start, stop, step = op.operands[:3]
        bounds = [self._scalar(start), self._scalar(stop), self._scalar(step)]
        before = None
        if not self._shapes.trips_alike(op):
            if not self._shapes.is_alike(stop):
                bounds[1] = self._latest(stop, bounds[0])
            before = self._stop_lanes(loop, self._line(stop), position)
        self._for(loop, (bounds[0], bounds[1], bounds[2]), before)

    def _latest(self, stop: Value, start: Value) -> Value:
        """The last end of the lanes that are on."""
        ends = self._line(stop)
        if self._mask is not None:
            ends = self._emit(ops.SELECT, self._mask, ends, self._splat(start))
        return self._emit(ops.REDUCE_MAX, ends)

    def _stop_lanes(self, loop: OpenLoop, stop: Value, position: Value) -> Callable[[], None]:
        """Lanes that have come to their end leave at the head of an iteration."""

        def before() -> None:
            assert loop.live is not None
            self._lines.pop(position, None)
            inside = self._emit(ops.LT, self._line(position), stop)
            self._mask = self._both(self._mask, inside)
            self._set(loop.live, self._mask)
            self._has_left = True

        return before

    def _counted_apart(self, loop: OpenLoop) -> None:
        """A `for` whose position each lane has for itself; the step is known, and never too far.

        Bounds of 32 bits are counted so, for positions are mostly distances of gathers.
        """
        op, (position, *_) = loop.op, loop.op.regions[0].args
        assert loop.live is not None
        row = ops.LT if self._shapes.is_rising(op) else ops.GT
        start, stops, steps = self._bounds(op)
        place = self._var(start.type, position.name)
        self._set(place, start)
        first = self._both(self._mask, self._emit(row, start, stops))
        self._set(loop.live, first)

        def advance() -> None:
            assert loop.live is not None
            after = self._emit(ops.ADD, self._get(place), steps)
            self._set(place, after)
            more = self._emit(row, after, stops)
            self._set(loop.live, self._both(self._get(loop.live), more))

        loop.step = advance

        def before() -> None:
            here = self._get(place)
            t = self._line_of(element_of(position.type))
            self._new[position] = here if here.type == t else self._emit(ops.CAST, here, type=t)

        some = self._any(first)
        with self._block() as block:
            region = Region((), tuple(self._body(loop, before)))
            self._out.append(Op(ops.LOOP, (), {}, (), (region,), op.span))
        self._branch(some, block)

    def _bounds(self, op: Op) -> tuple[Value, Value, Value]:
        """Start, stop and step of a `for` as lines of one type."""
        start, stop, step = op.operands[:3]
        small = [self._as_i32(start), self._as_i32(stop)]
        if self._shapes.constant(step) in (1, -1) and small[0] is not None and small[1] is not None:
            by = self._const(self._line_of(i32), self._shapes.constant(step) or 0)
            return small[0], small[1], by
        return self._line(start), self._line(stop), self._line(step)

    def _as_i32(self, value: Value) -> Value | None:
        """The line of an index that was a number of at most 32 bits; None where it was not."""
        number, t = self._shapes.constant(value), self._line_of(i32)
        if number is not None:
            return self._const(t, number) if abs(number) < 1 << 31 else None
        op = self._sources.get(value)
        if op is None:
            return None
        if op.row is ops.ADD and self._shapes.constant(op.operands[1]) == 0:
            return self._as_i32(op.operands[0])
        source = element_of(op.operands[0].type) if op.row is ops.CAST else None
        if source is None or source.bits > 32 or source is u32 or not source.is_integer:
            return None
        line = self._line(op.operands[0])
        return line if source is i32 else self._emit(ops.CAST, line, type=t)


def _own_jumps(region: Region) -> Iterator[Op]:
    """The jumps of the loop around a region."""
    for op in region.ops:
        if op.row in JUMPS:
            yield op
        elif op.row is ops.IF:
            for inner in op.regions:
                yield from _own_jumps(inner)
