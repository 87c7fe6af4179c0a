"""Programs: prepared launches in order, on operands that are identified by their number.

Prebuilt functions make one for each signature. It is called with its operands, which are arrays of
one library on one device or addresses of the host; native code runs it from the third call on,
where it reads arrays of that library.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.array.interop import address_of_tensor, queue_of_tensor, read_memory
from cubepy.array.memory import Memory, pointer
from cubepy.array.order import Ordered
from cubepy.jit.ahead import is_ahead
from cubepy.jit.launch import Prepared
from cubepy.jit.tensor_maps import Encoder
from cubepy.record import dataclass
from cubepy.runtimes.native.launching.callables import Base
from cubepy.runtimes.native.launching.process import existing_executor

CALLS = 2
"""Calls of a program in Python until native code is asked for."""
Hole = tuple[int, int, int]
"""A word of the argument block that holds an address: the word, the operand's number, and the
distance from that operand's address."""


@dataclass(frozen=True, slots=True)
class Step:
    """A prepared launch. `template`: its argument block without the addresses at `holes`."""

    prepared: Prepared
    template: tuple[int, ...]
    holes: tuple[Hole, ...]
    maps: tuple[tuple[Hole, Encoder], ...] = ()
    """Words that hold where a tensor map is, of the array at the address of the hole."""

    def run(self, addresses: Sequence[int], queue: int | None) -> None:
        """Launch in a queue on operands at these addresses.

        In checked mode it raises what a check of the kernel found.
        """
        block = (ctypes.c_uint64 * len(self.template))(*self.template)
        for word, number, offset in self.holes:
            block[word] = addresses[number] + offset
        if is_ahead():
            maps = [(word, addresses[n] + offset, made) for (word, n, offset), made in self.maps]
            self.prepared.record(block, maps)
            return
        encoded = [made.at(addresses[n] + offset) for (_, n, offset), made in self.maps]
        for ((word, _, _), _), found in zip(self.maps, encoded, strict=True):
            block[word] = found.address
        self.prepared.launch(block, queue)


def _address(operand: Any) -> int:
    if isinstance(operand, np.ndarray):
        return pointer(operand)
    return operand if isinstance(operand, int) else address_of_tensor(operand)


def _memory(operand: Any) -> Memory:
    memory = read_memory(operand)
    assert memory is not None
    return memory


def _is_tracked(operand: Any) -> bool:
    """Whether an operand says by its memory what work on it comes after."""
    return not isinstance(operand, np.ndarray | int) and not hasattr(operand, "data_ptr")


class Program(Base):
    """Steps that are launched one after another, each when the last one is done.

    `_data`, once native code runs it: a tuple of the words that describe it, and of what they refer
    to; see `runtimes.native.launching.tables`.
    """

    __slots__ = ("_calls", "_data", "operands", "steps", "written")

    def __init__(self, steps: Sequence[Step], operands: int, written: Sequence[int] = ()) -> None:
        """`written`: the numbers of the operands that launches write."""
        self.steps = tuple(steps)
        self.operands = operands
        self.written = tuple(written)
        self._calls = 0
        self._data: Any = None

    def __call__(self, *operands: Any) -> None:
        """Launch on these operands, in the order of the queue that works on them."""
        self._calls = calls = self._calls + 1
        if calls == CALLS:
            self._become_native(operands)
        self.run(*operands)

    def run(self, *operands: Any) -> None:
        """Launch by Python, where a profile sees it."""
        if not self.steps:
            return
        if any(map(_is_tracked, operands)):
            self._enqueue_in_order(operands)
            return
        addresses = [_address(o) for o in operands]
        queues = (queue_of_tensor(o) for o in operands if hasattr(o, "data_ptr"))
        self.enqueue(addresses, next(queues, None))

    def enqueue(self, addresses: Sequence[int], queue: int | None) -> None:
        """Launch in a queue on operands at these addresses."""
        for step in self.steps:
            step.run(addresses, queue)

    def _enqueue_in_order(self, operands: Sequence[Any]) -> None:
        memories = [_memory(o) for o in operands]
        outputs = [memories[k] for k in self.written]
        with Ordered(self.steps[0].prepared.device, None, memories, outputs) as queue:
            self.enqueue([m.address for m in memories], queue)

    def _become_native(self, operands: Sequence[Any]) -> None:
        """Let native code run it from the next call on, if it can."""
        from cubepy.jit.encoding import program_words
        from cubepy.jit.tables import native_executor

        known = native_executor()
        found = known and program_words(known, self, operands)
        if known and found:
            self._data = found
            self._entry = known.program_entry
            self.__class__ = known.program


Describe = Callable[..., bytes | None]


def describers() -> tuple[Describe, Describe] | None:
    """What describes arrays of NumPy and torch in bytes, and those of which the last is a result
    apart from the others, once native code was needed; see `native.launching.describing`."""
    known, torch = existing_executor(), sys.modules.get("torch")
    if known is None:
        return None
    if torch is not None:
        known.reads_tensors(torch.Tensor)
    return known.describe, known.describe_apart
