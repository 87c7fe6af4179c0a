"""Pairs of floats for `//` and `%`: where CPython's steps differ from the floor of the quotient."""

from typing import Any

import numpy as np

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.1, -0.3, 3.0, 1e-310, -5e-324, 1e300, np.inf, -np.inf, np.nan)


def floor_pairs(dtype: Any, count: int, seed: int | None = None) -> list[tuple[float, float]]:
    """Special pairs, pairs of any magnitudes, and pairs whose quotients are integers or near."""
    generator = np.random.default_rng(seed)
    info = np.finfo(dtype)
    span = np.log2(float(info.max)) * 0.98

    def numbers(low: float, high: float) -> np.ndarray:
        signs = generator.choice((-1.0, 1.0), count)
        return signs * np.exp2(generator.uniform(low, high, count))

    with np.errstate(all="ignore"):
        small, wide, other = numbers(-20, 20), numbers(-span, span), numbers(-span, span)
        near = small * np.rint(numbers(0, info.nmant + 3))
        beside = np.nextafter(
            near.astype(dtype), generator.choice((-1e9, 1e9), count).astype(dtype)
        )
        tiny = numbers(np.log2(float(info.smallest_subnormal)), -span)
        lefts = [wide, numbers(-20, 20), near, beside, tiny, wide, numbers(0, info.nmant + 9)]
        rights = [other, small, small, small, tiny[::-1], tiny, numbers(-3, 3)]
        left, right = (np.concatenate(p).astype(dtype) for p in (lefts, rights))
        chosen = generator.permutation(left.size)[:count]
        special = [(a, b) for a in SPECIAL for b in SPECIAL]
        a, b = (np.array(s).astype(dtype) for s in zip(*special, strict=True))
    a, b = np.concatenate([a, left[chosen]]), np.concatenate([b, right[chosen]])
    return list(zip(a.tolist(), b.tolist(), strict=True))
