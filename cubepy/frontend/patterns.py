"""Patterns of `match`: literals, `|`, captures, sequences of comptime length.

A test also gives what the pattern captures, and binds nothing: names are bound where it holds.
"""

from __future__ import annotations

import ast
from typing import Any

from cubepy.frontend import suggest
from cubepy.frontend.dispatch import evaluate
from cubepy.frontend.expressions import choose
from cubepy.frontend.operators import all_of, any_of, comparison
from cubepy.frontend.running import comptime_result
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import is_comptime, is_sequence
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.types import bool_

Captured = dict[str, Any]
"""The names that a pattern binds where it holds, with their values."""


def pattern_test(frame: Frame, pattern: ast.pattern, subject: Any, captured: Captured) -> Any:
    """Whether the subject matches: comptime True or False, or a runtime bool.

    What the pattern captures is added to `captured`.
    """
    if isinstance(pattern, ast.MatchValue):
        test = comparison(frame, ast.Eq, subject, evaluate(frame, pattern.value))
        return comptime_result(frame, bool, test) if is_comptime(test) else test
    if isinstance(pattern, ast.MatchSingleton):
        return _singleton(frame, pattern.value, subject)
    if isinstance(pattern, ast.MatchOr):
        return _alternatives(frame, pattern, subject, captured)
    if isinstance(pattern, ast.MatchAs):
        inner = pattern.pattern
        test = True if inner is None else pattern_test(frame, inner, subject, captured)
        if pattern.name is not None:
            captured[pattern.name] = subject
        return test
    if isinstance(pattern, ast.MatchSequence):
        return _sequence(frame, pattern, subject, captured)
    raise suggest.unsupported(frame, pattern)


def _alternatives(frame: Frame, pattern: ast.MatchOr, subject: Any, captured: Captured) -> Any:
    """`a | b`, without patterns that cannot hold and those behind one that always does."""
    possible: list[tuple[Any, Captured]] = []
    for part in pattern.patterns:
        own: Captured = {}
        test = pattern_test(frame, part, subject, own)
        if test is not False:
            possible.append((test, own))
        if test is True:
            break
    if possible:
        captured |= _of_first(frame, pattern, possible)
    return any_of(frame, [test for test, _ in possible])


def _of_first(frame: Frame, pattern: ast.MatchOr, possible: list[tuple[Any, Captured]]) -> Captured:
    """What the first pattern that holds captures, where one of them does."""
    *others, (_, found) = possible
    for k, (test, own) in enumerate(reversed(others)):
        for name, value in own.items():
            if value is not found[name]:
                key, holds = frame.key(pattern, "capture", name, k), frame.tracer.truth(test)
                found[name] = choose(frame, key, holds, ([], value), ([], found[name]))
    return found


def _singleton(frame: Frame, wanted: bool | None, subject: Any) -> Any:
    """`case True`, `case False` and `case None`."""
    if not isinstance(subject, Value) or subject.type is not bool_ or wanted is None:
        return is_comptime(subject) and subject is wanted
    return subject if wanted else frame.tracer.b.emit(ops.NOT, subject)


def _paired(
    patterns: list[ast.pattern], subject: tuple[Any, ...], captured: Captured
) -> list[tuple[ast.pattern, Any]] | None:
    """Each pattern with its item; `*rest` is captured. None where there are too few or too many."""
    stars = [k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)]
    if not stars:
        return list(zip(patterns, subject, strict=True)) if len(patterns) == len(subject) else None
    if len(subject) < len(patterns) - 1:
        return None
    (k,) = stars
    after = len(patterns) - k - 1
    rest = subject[k : len(subject) - after]
    star = patterns[k]
    if isinstance(star, ast.MatchStar) and star.name is not None:
        captured[star.name] = rest
    items = (*subject[:k], *subject[len(subject) - after :])
    return list(zip([*patterns[:k], *patterns[k + 1 :]], items, strict=True))


def _sequence(frame: Frame, pattern: ast.MatchSequence, subject: Any, captured: Captured) -> Any:
    if not is_sequence(subject):
        return False
    found = _paired(pattern.patterns, tuple(subject), captured)
    if found is None:
        return False
    return all_of(frame, [pattern_test(frame, p, s, captured) for p, s in found])
