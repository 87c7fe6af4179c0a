"""Patterns of `match`: literals, `|`, captures, sequences of comptime length."""

from __future__ import annotations

import ast
from typing import Any

from cubepy.frontend import suggest
from cubepy.frontend.dispatch import evaluate
from cubepy.frontend.operators import all_of, any_of, comparison
from cubepy.frontend.tracer import Frame, bind
from cubepy.frontend.values import is_comptime, is_sequence
from cubepy.ir import ops
from cubepy.ir.core import Value
from cubepy.ir.types import bool_


def pattern_test(frame: Frame, pattern: ast.pattern, subject: Any) -> Any:
    """Whether the subject matches: comptime True or False, or a runtime bool; binds captures."""
    if isinstance(pattern, ast.MatchValue):
        return comparison(frame, ast.Eq, subject, evaluate(frame, pattern.value))
    if isinstance(pattern, ast.MatchSingleton):
        return _singleton(frame, pattern.value, subject)
    if isinstance(pattern, ast.MatchOr):
        return any_of(frame, [pattern_test(frame, p, subject) for p in pattern.patterns])
    if isinstance(pattern, ast.MatchAs):
        test = True if pattern.pattern is None else pattern_test(frame, pattern.pattern, subject)
        if pattern.name is not None:
            bind(frame, pattern.name, subject)
        return test
    if isinstance(pattern, ast.MatchSequence):
        return _sequence(frame, pattern, subject)
    raise suggest.unsupported(frame, pattern)


def _singleton(frame: Frame, wanted: bool | None, subject: Any) -> Any:
    """`case True`, `case False` and `case None`."""
    if not isinstance(subject, Value) or subject.type is not bool_ or wanted is None:
        return is_comptime(subject) and subject is wanted
    return subject if wanted else frame.tracer.b.emit(ops.NOT, subject)


def _paired(
    frame: Frame, patterns: list[ast.pattern], subject: tuple[Any, ...]
) -> list[tuple[ast.pattern, Any]] | None:
    """Each pattern with its item; `*rest` is bound. None where there are too few or too many."""
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
        bind(frame, star.name, rest)
    items = (*subject[:k], *subject[len(subject) - after :])
    return list(zip([*patterns[:k], *patterns[k + 1 :]], items, strict=True))


def _sequence(frame: Frame, pattern: ast.MatchSequence, subject: Any) -> Any:
    if not is_sequence(subject):
        return False
    found = _paired(frame, pattern.patterns, tuple(subject))
    if found is None:
        return False
    return all_of(frame, [pattern_test(frame, p, s) for p, s in found])
