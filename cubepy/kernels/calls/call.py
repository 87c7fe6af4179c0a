"""One call of a prebuilt function: its plan is looked up, or made, and run.

Every entry ends here. What a family adds is `make`: from the memories of the arrays it decides the
results and the launches, for a signature that was not seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cubepy.array.graphs import is_recording, record
from cubepy.autotune import session
from cubepy.collection import paused_collection
from cubepy.errors import Error, fail
from cubepy.jit.ahead import is_ahead
from cubepy.jit.kernel import without_frames
from cubepy.kernels.calls.arguments import exact
from cubepy.kernels.calls.libraries import Library, libraries_agree, library_of
from cubepy.kernels.calls.plans import Plan, Planner, Plans
from cubepy.kernels.calls.recorded import Found, RecordedCall
from cubepy.kernels.calls.tuned import Picks, tuned_plan

Make = Callable[..., None]
"""Adds results and launches to a planner, for the memories of the arrays: its last two
arguments."""


def call(
    plans: Plans,
    function: str,
    names: tuple[str, ...],
    arrays: Sequence[Any],
    parameters: tuple[Any, ...],
    make: Make,
    out: Any = None,
    count: int = 1,
    *,
    asked: tuple[Any, ...] = (),
    optional: tuple[str, ...] = (),
) -> Any:
    """The result of a call, or `count` results as a tuple.

    `arrays`: the arguments, with their `names`; those that are `optional` are left out where they
    are None. `parameters`: all else that the plan depends on; E602 for what has no hash. `out`:
    None, an array, or `count` of them. `asked`: what `make` is given before the planner, so that it
    need not be a closure, which each call would make. An array without axes that nobody brought is
    given as its library gives it.
    """
    short = None
    if out is None or count == 1:
        try:
            short, found = plans.short.look(function, names, arrays, parameters, out)
        except TypeError:  # a list has no hash
            listed = exact(function, parameters)
            more: dict[str, Any] = {"asked": asked, "optional": optional}
            return call(plans, function, names, arrays, listed, make, out, count, **more)
        if found is not None:
            return found.run(arrays, count, out)
    if len(arrays) == 1:
        library, x = library_of(function, names[0], arrays[0])
        held = [x]
    else:
        library, names, held = _together(function, names, arrays, optional)
        parameters = names, parameters
    short = short, [x is not None for x in arrays]
    make = partial(make, *asked) if asked else make
    return run(plans, function, library, names, held, parameters, make, out, count, short)


def run(
    plans: Plans,
    function: str,
    library: Library,
    names: Sequence[str],
    arrays: list[Any],
    parameters: tuple[Any, ...],
    make: Make,
    out: Any = None,
    count: int = 1,
    short: tuple[Any, Sequence[bool]] = (None, ()),
) -> Any:
    """As `call`, for arrays as their library sees them. `short`: the key of a short call, and
    for each of its arguments whether it is there."""
    find = partial(_plan, plans, function, library, names, arrays, parameters, make)
    if is_recording():
        return _recorded(find, library, arrays, out, count)
    try:
        plan, given, addresses = find(out, count)
    except Error as error:
        raise without_frames(error) from error.__cause__
    results = plan.run(library, arrays, given, addresses)
    if not is_ahead():
        plans.short.keep(short[0], library, plan, arrays, short[1], out is not None)
    if out is not None:
        return out
    if count == 1:
        return library.scalar(results[0]) if plan.has_scalars else results[0]
    return tuple(map(library.scalar, results)) if plan.has_scalars else tuple(results)


def _recorded(
    find: Callable[[Any, int], Found], library: Library, arrays: list[Any], out: Any, count: int
) -> Any:
    """Add a call to the graph that is recorded; replays fill the results that are given here.
    `find`: `_plan` of the call."""
    if out is None:
        results = [make_one() for make_one in find(None, count)[0].results]
        out = results[0] if count == 1 else tuple(results)
    record(RecordedCall(library, arrays, partial(find, out, count)))
    return out


def _plan(
    plans: Plans,
    function: str,
    library: Library,
    names: Sequence[str],
    arrays: list[Any],
    parameters: tuple[Any, ...],
    make: Make,
    out: Any,
    count: int,
) -> Found:
    """The plan of a call, the results that the caller brought, and the addresses of the arguments
    and of these, if there are some."""
    keys = tuple([library.key(x) for x in arrays])
    addresses: list[int] = []
    given, outputs = None, None
    if out is not None:
        addresses = library.addresses(arrays)
        given = _outputs(function, (names[0], library), out, count)
        outputs = tuple([library.key(x) for x in given]), _shared(addresses, library, given)
    key = (function, library, keys, exact(function, parameters), outputs)
    plan = plans.find(key)
    if plan is None:

        def build(picks: Picks) -> Plan:
            with paused_collection():
                planner = Planner(function, library, given, picks)
                read = [planner.array(name, x) for name, x in zip(names, arrays, strict=True)]
                make(planner, read)
                return planner.plan()

        changes = session.changes[0]
        plan = tuned_plan(library, build, arrays, given)
        if changes == session.changes[0] and not is_ahead():  # else a search behind this has ended
            plans.keep(key, plan)
    return plan, given, addresses


def _together(
    function: str, names: Sequence[str], arrays: Sequence[Any], optional: tuple[str, ...]
) -> tuple[Library, tuple[str, ...], list[Any]]:
    """The library of the arrays, and the arrays as it sees them, with their names."""
    library: Library | None = None
    kept: list[str] = []
    found: list[Any] = []
    for name, x in zip(names, arrays, strict=True):
        if x is None and name in optional:
            continue
        own, seen = library_of(function, name, x)
        if library is not None and own is not library:
            libraries_agree(function, ((kept[0], library), (name, own)))
        library = own
        kept.append(name)
        found.append(seen)
    assert library is not None
    return library, tuple(kept), found


def _outputs(function: str, first: tuple[str, Library], out: Any, count: int) -> list[Any]:
    """The results that the caller brought, as their library sees them; E602 unless all are there
    and are of the library of the `first` argument."""
    if count == 1:
        return [_output(function, "out", first, out)]
    if not isinstance(out, tuple | list) or len(out) != count:
        raise fail(
            "E602",
            function=function,
            reason=f"`out` is a tuple of {count} arrays here",
            suggestion="pass one for each result",
        )
    return [_output(function, f"out[{k}]", first, x) for k, x in enumerate(out)]


def _output(function: str, name: str, first: tuple[str, Library], x: Any) -> Any:
    own, seen = library_of(function, name, x)
    if own is not first[1]:
        libraries_agree(function, (first, (name, own)))
    return seen


def _shared(addresses: list[int], library: Library, given: list[Any]) -> Any:
    """Which results begin where arguments begin; their addresses join those of the arguments."""
    outputs = library.addresses(given)
    same = [(k, i) for k, o in enumerate(outputs) for i, a in enumerate(addresses) if a == o]
    addresses += outputs
    return tuple(same)
