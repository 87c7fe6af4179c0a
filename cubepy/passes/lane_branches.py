"""Blocks and branches of lanes: each side under its mask, where any lane takes it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from cubepy.ir import ops
from cubepy.ir.core import Op, Region, Value
from cubepy.ir.types import bool_, element_of
from cubepy.passes.lane_operations import LANEWISE, POSITIONS, LaneOperations, is_own
from cubepy.passes.lane_shapes import LOOPS

CHEAP = 12
"""Operations of both sides of a branch that is not worth asking whether any lane takes it."""
DIVISIONS = (ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC)
"""Operations that are cheap for lanes only where the divisor is a constant."""
JUMPS = (ops.BREAK, ops.CONTINUE)


class LaneBranches(LaneOperations):
    """Writes blocks, in which lanes may leave, and branches."""

    def _op(self, op: Op) -> None:
        raise NotImplementedError

    def _jump(self, op: Op) -> None:
        raise NotImplementedError

    # Blocks

    def _ops(self, body: Sequence[Op]) -> None:
        """The operations of a region, its terminator included."""
        for k, op in enumerate(body):
            self._span = op.span
            self._op(op)
            if self._out and self._out[-1].row.is_terminator:
                return
            if self._has_left:
                self._has_left = False
                if self._rest(body[k + 1 :]):
                    return

    def _rest(self, rest: Sequence[Op]) -> bool:
        """What follows where lanes have left; True if it was written."""
        if not any(op.row is not ops.CONST for op in rest[:-1]):
            return False
        if not self._depth and not any(loop.is_soft for loop in self._loops):
            with self._block() as leave:
                self._append(ops.RETURN)
            self._branch(self._any(self._mask_line()), [], leave)
            return False
        if self._cost(rest[:-1]) is not None:
            self._may_be_empty = True
            return False
        some = self._any(self._mask_line())
        with self._block() as block:
            self._ops(rest)
        self._branch(some, block)
        return True

    def _cost(self, body: Sequence[Op]) -> int | None:
        """How many operations a block has that may run although no lane takes it; None if it
        must not, or is dear."""
        total = 0
        for op in body:
            if op.row is ops.CONST:
                continue
            weight = self._weight(op)
            if weight is None:
                return None
            total += weight
        return total if total <= CHEAP else None

    def _weight(self, op: Op) -> int | None:
        if op.row in (ops.LOAD, ops.STORE):
            stride = self._shapes.stride(op.operands[1])
            return 2 if stride == 1 or (stride == 0 and is_own(op)) else None
        if op.row in LANEWISE:
            return self._weight_of_division(op) if op.row in DIVISIONS else 1
        return 1 if op.row in (ops.CUBE_POS, ops.CUBE_COUNT, *POSITIONS) else None

    # Branches

    def _weight_of_division(self, op: Op) -> int | None:
        """Powers of two are shifts; other constants products."""
        if not element_of(op.result.type).is_integer:
            return None
        divisor = self._shapes.constant(op.operands[1]) or 0
        if divisor <= 0:
            return None
        return 1 if divisor & (divisor - 1) == 0 else 4

    def _if(self, op: Op) -> None:
        if self._shapes.is_alike(op.operands[0]):
            self._branch_together(op, self._scalar(op.operands[0]))
        elif op.attrs.get("together"):
            self._branch_together(op, self._all(self._line(op.operands[0])))
        elif all(self._is_flat(region) for region in op.regions) and self._is_cheap(op):
            self._flat(op)
        else:
            self._diverge(op)

    def _is_flat(self, region: Region) -> bool:
        return not any(op.regions or op.row is ops.RETURN for op in region.ops)

    def _is_cheap(self, op: Op) -> bool:
        costs = [self._cost(region.ops[:-1]) for region in op.regions]
        if any(cost is None for cost in costs):
            return False
        jumps = [r.terminator for r in op.regions if r.terminator.row in JUMPS]
        carried = sum(len(jump.operands) for jump in jumps)
        return sum(cost or 0 for cost in costs) + carried <= CHEAP

    def _masked_escapes(self, op: Op) -> bool:
        """Whether lanes may leave a branch other than by its end, while the code goes on."""
        return any(self._escapes(region, False) for region in op.regions)

    def _escapes(self, region: Region, inner: bool) -> bool:
        for op in region.ops:
            if op.row is ops.RETURN and op not in self._shapes.real_returns:
                return True
            if op.row in JUMPS and not inner and not self._is_real(op):
                return True
            inside = inner or op.row in LOOPS
            if any(self._escapes(r, inside) for r in op.regions):
                return True
        return False

    def _is_real(self, op: Op) -> bool:
        """Whether a jump of the innermost loop is one of all lanes."""
        loop = self._loops[-1]
        return loop.live is None and (op.row is ops.BREAK or not loop.is_soft)

    @contextmanager
    def _state(self, mask: Value | None) -> Generator[None]:
        """Lanes of a region; what is known of them outside comes back."""
        kept = self._mask, self._may_be_empty
        self._mask = mask
        yield
        self._mask, self._may_be_empty = kept
        self._has_left = False

    def _flat(self, op: Op) -> None:
        """Both sides, without a question."""
        condition = self._line(op.operands[0])
        masks = (
            self._both(self._mask, condition),
            self._both(self._mask, self._emit(ops.NOT, condition)),
        )
        ends: list[Sequence[Value] | None] = []
        self._depth += 1
        for region, mask in zip(op.regions, masks, strict=True):
            with self._state(mask):
                self._may_be_empty = True
                for inner in region.ops[:-1]:
                    self._op(inner)
                last = region.terminator
                ends.append(last.operands if last.row is ops.YIELD else None)
                if last.row is not ops.YIELD:
                    self._jump(last)
        self._depth -= 1
        then, other = ends
        for k, result in enumerate(op.results):
            stride = self._shapes.stride(result)
            sides = [self._as(end[k], stride) for end in ends if end]
            if len(sides) == 2 and sides[0] is not sides[1]:
                self._new[result] = self._emit(ops.SELECT, condition, *sides, name=result.name)
            elif sides:
                self._new[result] = sides[0]
        if then is None or other is None:
            self._mask = masks[1] if then is None else masks[0]
            if then is None and other is None:
                self._mask = self._all_off()
            self._has_left = True

    def _diverge(self, op: Op) -> None:
        """Each side under its mask, if any lane takes it."""
        condition = self._line(op.operands[0])
        outer = self._mask
        masks = (
            self._both(outer, condition),
            self._both(outer, self._emit(ops.NOT, condition)),
        )
        left = self._var(self._line_of(bool_), "left") if self._masked_escapes(op) else None
        if left is not None:
            self._set(left, self._all_off())
        refs = self._result_refs(op)
        sides = sorted(zip(op.regions, masks, strict=True), key=lambda s: len(s[0].ops) > 1)
        assigned: set[Value] = set()
        self._depth += 1
        for region, mask in sides:
            is_trivial = len(region.ops) == 1 and region.terminator.row is ops.YIELD
            if is_trivial:
                self._side(op, region, mask, refs, left, assigned)
                continue
            some = self._any(mask)
            with self._block() as block:
                self._side(op, region, mask, refs, left, assigned)
            self._branch(some, block)
        self._depth -= 1
        self._results(op, refs)
        if left is not None:
            self._mask = self._part_of(outer, self._get(left))
            self._has_left = True

    def _result_refs(self, op: Op) -> list[Value]:
        return [self._var(self._type_as(v), v.name) for v in op.results]

    def _results(self, op: Op, refs: Sequence[Value]) -> None:
        for old, ref in zip(op.results, refs, strict=True):
            self._new[old] = self._get(ref)

    def _side(
        self,
        op: Op,
        region: Region,
        mask: Value | None,
        refs: Sequence[Value],
        left: Value | None,
        assigned: set[Value] | None,
    ) -> None:
        """One side of a branch; its values go to `refs`, the lanes at its end to `left`.

        With `assigned`, the other side's lanes keep theirs.
        """

        def end(leave: Op) -> None:
            for ref, value, result in zip(refs, leave.operands, op.results, strict=True):
                new = self._as(value, self._shapes.stride(result))
                if assigned is not None and ref in assigned:
                    self._blend(ref, new, mask)
                else:
                    self._set(ref, new)
            if left is not None:
                here = self._mask_line()
                self._set(left, self._emit(ops.OR, self._get(left), here))

        self._yields.append(end)
        self._left.append(left)
        with self._state(mask):
            if assigned is not None:
                self._may_be_empty = len(region.ops) == 1
            self._ops(region.ops)
        self._left.pop()
        self._yields.pop()
        if assigned is not None:
            assigned.update(refs)

    def _all(self, condition: Value) -> Value:
        """Whether a condition holds in all lanes that are on."""
        gone = self._emit(ops.NOT, condition)
        return self._emit(ops.NOT, self._any(self._both(self._mask, gone)))

    def _branch_together(self, op: Op, condition: Value) -> None:
        """A branch that all lanes take alike."""
        left = self._var(self._line_of(bool_), "left") if self._masked_escapes(op) else None
        if left is not None:
            self._set(left, self._all_off())
        refs = self._result_refs(op)
        blocks: list[list[Op]] = []
        for region in op.regions:
            with self._block() as block:
                self._side(op, region, self._mask, refs, left, None)
            blocks.append(block)
        self._branch(condition, *blocks)
        self._results(op, refs)
        if left is not None:
            self._mask = self._part_of(self._mask, self._get(left))
            self._has_left = True
