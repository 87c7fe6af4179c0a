"""What the writer must know of a kernel before it writes: uses, and which locals can be shared.

An `if` or loop may go on in the local of a value that nobody needs afterwards: `acc` stays `acc`.
"""

from __future__ import annotations

from cubepy.ir.core import Kernel, Op, Region, Value


class Plan:
    """How often each value is used, and the last operation of its region that uses it."""

    def __init__(self, kernel: Kernel) -> None:
        self.uses: dict[Value, int] = {}
        self._home: dict[Value, Region] = {}
        self._last: dict[Value, Op] = {}
        self._users: dict[Value, Op] = {}
        self._region(kernel.body, [])

    def _region(self, region: Region, around: list[tuple[Region, Op | None]]) -> None:
        for arg in region.args:
            self._home[arg] = region
        for op in region.ops:
            stack = [*around, (region, op)]
            for value in op.operands:
                self.uses[value] = self.uses.get(value, 0) + 1
                self._users[value] = op
                self._use(value, stack)
            for result in op.results:
                self._home[result] = region
            for inner in op.regions:
                self._region(inner, stack)

    def _use(self, value: Value, stack: list[tuple[Region, Op | None]]) -> None:
        """The operation around the use that stands in the region where the value is defined."""
        home = self._home.get(value)
        for region, op in stack:
            if region is home and op is not None:
                self._last[value] = op

    def ends_with(self, value: Value, op: Op, region: Region) -> bool:
        """Whether `value` is defined in `region`, and `op` in it is the last that needs it."""
        return self._home.get(value) is region and self._last.get(value) is op

    def is_only_passed_on(self, value: Value) -> bool:
        """Whether the only use is to be yielded or carried, which assigns it to a local."""
        return self.uses.get(value, 0) == 1 and self._users[value].row.is_terminator
