"""Guards in loops, for a compiler that splits loops at them wrongly.

NVVM (CUDA 13.0 and 13.5) makes of `for k in range(n): if k <= y: ...` a loop up to
`min(y + 1, n)` and another one behind it. Where it knows that `n` is not negative it compares
unsigned numbers, and for a negative `y` all steps go into the wrong loop; a `y` that is the
greatest integer overflows. So what follows a counter is `HIDDEN` where it is compared with a value
that is no constant. Conditions that end a loop stay: they say how often it runs, and are right but
for those that compare sums with a term of their own, as `if k + x < x: break` does, which asks
whether a sum has wrapped around: NVVM ends the loop in its second step.

NVVM ends the process at a guard that holds in one step, as `if k == 0` or `if k == n - 1`, of a
loop of unknown length, where what it guards asks for one thing or another, as in
`if not found or x[k] > 9`. There the counter is `HIDDEN`, too.
"""

from __future__ import annotations

from collections.abc import Callable

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import Buffer, bool_, element_of
from cubepy.passes.legalise.hide_operands import HideOperands
from cubepy.passes.legalise.linear_forms import LinearForms, is_integer
from cubepy.passes.origins import Origins

_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_LOGIC = (ops.NOT, ops.AND, ops.OR, ops.XOR)
_LOOPS = (ops.FOR, ops.LOOP)


def hide_guards(kernel: Kernel) -> Kernel:
    """The kernel in which no guard shows that it compares the counter of a loop."""
    if not any(op.row in _LOOPS for op in kernel.body.walk()):
        return kernel
    found = _Guards(kernel).hidden()
    return HideOperands(found).run(kernel) if found else kernel


class _Guards:
    """Finds comparisons of counters, and whether they guard something."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._origins = Origins(kernel)
        self._forms = LinearForms(kernel, self._origins)
        self._users: dict[Value, list[Op]] = {}
        for op in kernel.body.walk():
            for value in op.operands:
                self._users.setdefault(value, []).append(op)

    def hidden(self) -> dict[Op, int]:
        """Such comparisons, each with the operand that follows the counter."""
        found: dict[Op, int] = {}
        for op in self._kernel.body.walk():
            if op.row in _ORDERS and is_integer(op.operands[0]):
                shares = self._shares(op)
                places = [
                    k for k, v in enumerate(op.operands) if any(self._forms.steps(v, not shares))
                ]
                if places and (shares or (self._is_open(op) and self._guards(op.result))):
                    found[op] = places[0]
            step = self._step(op)
            if step is not None and self._guards(op.result, _asks_twice):
                found.setdefault(*step)
        return found

    def _step(self, op: Op) -> tuple[Op, int] | None:
        """The operand that follows the counter of a loop of unknown length, of a condition that may
        hold in one step: an equality, or an order beside a constant. Of a float, that of the
        conversion."""
        is_truth = op.row is ops.CAST and op.result.type is bool_
        if not is_truth and op.row not in (ops.EQ, ops.NE, *_ORDERS):
            return None
        compared = [self._before_floats(op, k) for k in range(len(op.operands))]
        for k, (maker, place) in enumerate(compared):
            value = maker.operands[place]
            if not is_integer(value) or (op.row in _ORDERS and self._is_open_at(op, 1 - k)):
                continue
            if any(map(self._is_long, self._forms.steps(value, by_ones=False))):
                return maker, place
        return None

    def _before_floats(self, op: Op, place: int) -> tuple[Op, int]:
        """Where an operand can be hidden: there, or where it is converted to a float."""
        owner = self._origins.owner(op.operands[place])
        is_made = owner is not None and owner.row is ops.CAST and is_integer(owner.operands[0])
        return (owner, 0) if owner and is_made and _is_float(op.operands[place]) else (op, place)

    def _is_open_at(self, op: Op, place: int) -> bool:
        """Whether an operand is no constant."""
        value = op.operands[place]
        if _is_float(value):
            return value not in self._forms.numbers
        return bool(self._forms.of(value).factors)

    def _is_long(self, counter: Value) -> bool:
        """Whether the length of its loop is not known."""
        loop = self._origins.owner(counter)
        return (
            loop is None or loop.row is not ops.FOR or loop.operands[1] not in self._forms.numbers
        )

    def _shares(self, op: Op) -> bool:
        """Whether both operands are sums with one term, which each may have loaded itself."""
        one, two = ({self._term(v) for v in self._forms.of(side).factors} for side in op.operands)
        return bool(one & two)

    def _term(self, value: Value) -> object:
        """What is equal for values that NVVM finds equal: loads of one element, and their casts."""
        op = self._origins.owner(value)
        if op is not None and op.row is ops.LOAD and len(op.operands) == 2:
            return op.operands
        if op is not None and op.row is ops.CAST:
            return value.type, self._term(op.operands[0])
        return value

    def _is_open(self, op: Op) -> bool:
        """Whether more than the counter decides."""
        values = {v for operand in op.operands for v in self._forms.of(operand).factors}
        return len(values) > 1

    def _guards(self, condition: Value, counts: Callable[[Op], bool] | None = None) -> bool:
        """Whether anything depends on it that `counts`: by default, but the end of a loop."""
        counts = counts or _stays
        return any(
            self._guards(user.result, counts) if user.row in _LOGIC else counts(user)
            for user in self._users.get(condition, ())
        )


def _is_float(value: Value) -> bool:
    return not isinstance(value.type, Buffer) and element_of(value.type).is_float


def _stays(op: Op) -> bool:
    """Whether an operation is no branch that ends a loop."""
    return op.row is not ops.IF or not any(map(_leaves, op.regions))


def _asks_twice(op: Op) -> bool:
    """Whether an operation is a branch in which truths are joined, or a branch has both arms."""
    inside = (inner for region in op.regions for inner in region.walk())
    return op.row is ops.IF and any(map(_joins, inside))


def _joins(op: Op) -> bool:
    if op.row is not ops.IF:
        return op.row in (ops.OR, ops.AND)
    return len(op.regions[1].ops) > 1 or any(result.type is bool_ for result in op.results)


def _leaves(region: Region) -> bool:
    return region.ops[-1].row is ops.BREAK
