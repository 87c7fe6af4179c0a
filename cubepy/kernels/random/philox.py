"""Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011). Lanes of lines are blocks with counters of their own.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp

ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
"""What the two words of the key grow by in a round."""


def product(a: Any, factor: Any) -> Any:
    """The upper and the lower word of a product."""
    return cp.mul_hi(a, factor), a * factor


def mixed(counter: Any, key: Any) -> Any:
    """One round."""
    high, low = product(counter[0], cp.u32(FACTORS[0]))
    other, below = product(counter[2], cp.u32(FACTORS[1]))
    return (other ^ counter[1] ^ key[0], below, high ^ counter[3] ^ key[1], low)


def philox(counter: Any, key: Any) -> Any:
    """The four words of blocks with four words of counter each, under a key of two."""
    for _ in cp.unroll(range(ROUNDS)):
        counter = mixed(counter, key)
        key = (key[0] + cp.u32(STEPS[0]), key[1] + cp.u32(STEPS[1]))
    return counter
