"""Which keys a query sees by its position: those up to its own, or those of a window around it."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.calls.arguments import refused, wrong

Sides = tuple[bool, tuple[int | None, int | None] | None]
"""Whether attention is causal, and its window, as the caller gave it."""


def seen_from(i: Any, window: Any) -> Any:
    """The first key that query `i` sees; it may lie before all keys.

    `window`: how many keys before and behind its own position a query sees, or nothing.
    """
    return i - window[0] if len(window) else 0


def seen_to(i: Any, keys: Any, window: Any, t: Any) -> Any:
    """The key behind the last that query `i` sees, of so many; it may lie before all keys."""
    if len(window):
        return min(keys, i + window[1] + 1)
    return min(keys, i + 1) if t.is_causal else keys


def asked_from(j: Any, window: Any, t: Any) -> Any:
    """The first query that sees key `j`; it may lie before all queries."""
    if len(window):
        return j - window[1]
    return j if t.is_causal else 0


def asked_to(j: Any, queries: Any, window: Any) -> Any:
    """The query behind the last that sees key `j`, of so many."""
    return min(queries, j + window[0] + 1) if len(window) else queries


def steps_within(first: Any, count: int, keys: Any, window: Any, t: Any) -> Any:
    """The steps of keys that some of `count` queries see, one at least."""
    begin = max(0, seen_from(first, window)) // t.keys
    end = max(1, (seen_to(first + count - 1, keys, window, t) + t.keys - 1) // t.keys)
    return min(begin, end - 1), end


def has_ends(window: Any, t: Any) -> Any:
    """Whether the position of a query says which keys it sees."""
    return t.is_causal or len(window) > 0


def checked_window(function: str, window: Any) -> tuple[int | None, int | None] | None:
    """The window of a call; E601 and E602 for what is none."""
    if window is None:
        return None
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise refused(function, "window", f"is {window!r}; it takes two numbers of keys", "")
    for n in window:
        if n is not None and (isinstance(n, bool) or not hasattr(n, "__index__")):
            raise refused(function, "window", f"is {window!r}; it takes ints, or None for all", "")
    before, behind = (None if n is None else int(n) for n in window)
    if min(before or 0, behind or 0) < 0:
        raise wrong(function, f"`window` is {window!r}, which is negative", "None sees all keys")
    return before, behind


def reach_of(causal: bool, window: Any, queries: int, keys: int) -> tuple[bool, tuple[int, ...]]:
    """Whether attention is causal and nothing else, and the window where there is one.

    `window`: (before, behind), each the keys that a query sees beside its own, or None for all; or
    None. What a side leaves of all positions is no window.
    """
    before, behind = (None, None) if window is None else window
    before = queries if before is None else min(before, queries)
    behind = keys if behind is None else min(behind, keys)
    behind = 0 if causal else behind
    if before >= queries - 1:
        if behind >= keys - 1:
            return False, ()
        if behind == 0:
            return True, ()
    return False, (before, behind)
