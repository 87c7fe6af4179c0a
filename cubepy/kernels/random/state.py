"""Where draws that name no seed take their numbers from."""

from __future__ import annotations

import secrets
from operator import index
from threading import Lock

from cubepy.forks import at_fork
from cubepy.kernels.calls.arguments import refused


class State:
    """A seed, and the next block that nobody has used; safe to share between threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._seed, self._block, self._is_chosen = secrets.randbits(64), 0, False

    def restart(self, seed: int) -> None:
        """Begin the stream of another seed."""
        with self.lock:
            self._seed, self._block, self._is_chosen = seed, 0, True

    def begin_child(self) -> None:
        """In a forked child, which holds the lock: draw other numbers than the parent, unless
        somebody chose a seed."""
        if not self._is_chosen:
            self._seed, self._block = secrets.randbits(64), 0

    def take(self, blocks: int) -> tuple[int, int]:
        """The seed, and the first of so many blocks that are nobody else's."""
        with self.lock:
            first = self._block
            self._block += blocks
            return self._seed, first


DEFAULT = State()
at_fork(DEFAULT.lock, in_child=DEFAULT.begin_child)


def seed(value: int) -> None:
    """Begin again the stream that draws without a seed take their numbers from.

    `value`: an integer, of which 64 bits count. A process begins with a seed of the operating
    system; each draw takes the blocks that follow those of the one before, in all threads. So does
    a forked child, but where a seed was chosen before, it goes on with its parent's stream.
    """
    try:
        DEFAULT.restart(index(value) % 2**64)
    except TypeError:
        raise refused("random.seed", "value", f"is {value!r}; it takes integers", "") from None
