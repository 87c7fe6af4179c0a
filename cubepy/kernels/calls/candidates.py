"""Plans of one call as the autotuner tries them, on copies of what the caller gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from cubepy.array.memory import HOST
from cubepy.autotune.measure import Clock, Timer
from cubepy.autotune.model import bound, machine_of
from cubepy.autotune.predict import predicted
from cubepy.autotune.scratch import Scratch, Uncopyable, contents, poison
from cubepy.autotune.subject import Recording
from cubepy.jit.ahead import Recorded, compiling_ahead
from cubepy.kernels.calls.libraries import read
from cubepy.kernels.calls.tuned import Operands
from cubepy.lazy import cached_property
from cubepy.runtimes.registry import find_device


class Copies:
    """The operands of a call as candidates see them: what they write is nobody else's.

    `outs`: results; `updated`: arguments that are written too. Both are compared.
    """

    def __init__(self, operands: Operands, plan: Any) -> None:
        """`plan`: any of the call's; all have the same results."""
        library, arrays, given = operands.library, list(operands.arrays), operands.given or ()
        theirs = library.addresses(given)
        places = library.addresses(arrays)
        shared = [k for k, address in enumerate(places) if address in theirs]
        if shared and library.device != HOST:
            raise Uncopyable("results in place of arguments on a device")
        copied = sorted({*plan.updated, *shared})
        self._scratch = Scratch((*given, *(arrays[k] for k in copied)), {})
        copies = list(self._scratch.args)
        made = [make() for make in plan.results] if operands.given is None else None
        self.outs = copies[: len(given)] if made is None else made
        for k, copy in zip(copied, copies[len(given) :], strict=True):
            arrays[k] = copy
        self.arrays = arrays
        self.updated = [arrays[k] for k in plan.updated]
        self._fresh = [
            x for k, x in enumerate(self.outs) if made is not None or theirs[k] not in places
        ]

    def restore(self, poisoned: bool) -> None:
        """Contents as the caller's; NaN in results whose content does not count."""
        self._scratch.restore()
        for result in self._fresh if poisoned else ():
            poison(result)


class PlanCandidates:
    """See `autotune.subject.Subject`: plans of one call, which write to results of their own."""

    def __init__(
        self,
        texts: Sequence[str],
        plan_of: Callable[[int], Any],
        operands: Operands,
        is_whole: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`is_whole`: plans read and write all of their arrays."""
        self.texts, self._plan_of, self._operands = list(texts), plan_of, operands
        self._is_whole = is_whole
        self.reference: int = 0
        self.rtol: float | None = None
        by_torch = any(type(x).__module__ == "torch" for x in operands.arrays)
        self._timer = Timer(operands.library.device, by_torch, clock)
        self._plans: dict[int, tuple[Any, list[Any]]] = {}

    @cached_property
    def _copies(self) -> Copies:
        return Copies(self._operands, self._plan_of(0))

    def restore(self, poisoned: bool) -> None:
        self._copies.restore(poisoned)

    def _ready(self, k: int) -> tuple[Any, list[Any]]:
        """A plan, and all that it works on."""
        found = self._plans.get(k)
        if found is None:
            plan, copies = self._plan_of(k), self._copies
            scratch = [make() for make in plan.scratch]
            found = self._plans[k] = plan, [*copies.arrays, *copies.outs, *scratch]
        return found

    def _launch(self, k: int) -> None:
        plan, operands = self._ready(k)
        self._operands.library.launch(plan.program, operands)

    def copy_arguments(self) -> None:
        """Nothing: a plan is made without them."""

    def make(self, k: int, predicts: bool) -> float | None:
        with compiling_ahead(predicts) as made:
            plan = self._plan_of(k)
        steps = plan.program.steps
        made.launches = [Recorded(s.prepared.compiled.artifact, s.template) for s in steps]
        return predicted(self._operands.library.device, made, _bytes(plan))

    def recorded(self, k: int, only_kept: bool) -> Recording:
        copies, library = self._copies, self._operands.library
        with compiling_ahead(False, only_kept) as made:
            plan = self._plan_of(k)
            scratch = [make() for make in plan.scratch]
            held = [*copies.arrays, *copies.outs, *scratch]
            plan.program.enqueue(library.addresses(held), None)
        memories = [read(x) for x in held]
        count = len(copies.arrays)
        return Recording(tuple(made.launches), tuple(memories[:count]), tuple(memories[count:]))

    def run(self, k: int) -> None:
        self._launch(k)
        self._timer.wait()

    def outputs(self) -> list[Any]:
        return [contents(x) for x in (*self._copies.outs, *self._copies.updated)]

    def learn(self) -> None:
        """Nothing: results are written whole, and those that are arguments keep their content."""

    def flush(self) -> None:
        self._timer.flush()

    def seconds(self, k: int, count: int) -> float:
        self._ready(k)
        return self._timer.seconds(lambda: self._launch(k), count, name=k)

    def bound(self) -> float:
        """Of memory; what is computed is not known here."""
        if not self._is_whole:
            return 0.0
        plan, _ = self._ready(0)
        return bound(
            machine_of(find_device(self._operands.library.device).target), (), _bytes(plan)
        )


def _bytes(plan: Any) -> int:
    """Bytes of the arrays and results of a plan; what is repeated counts once."""
    axes = (zip(m.shape, m.strides, strict=True) for m in plan.operands)
    counts = (prod(n for n, stride in pairs if stride or not n) for pairs in axes)
    return sum(n * m.dtype.itemsize for n, m in zip(counts, plan.operands, strict=True))
