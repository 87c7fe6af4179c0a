"""`cubepy inspect cubepy.kernels:NAME`: the launches of a prebuilt function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cubepy.artifact import Listing, Place
from cubepy.cli.failures import misuse
from cubepy.jit.kernel import resolve_target
from cubepy.kernels.calls.inspection import Launch, record
from cubepy.lang.annotations import Spec

if TYPE_CHECKING:
    from cubepy.cli.inspection import Request

_COMMENTS = {"asm": "#", "ir": "//"}


def inspect_prebuilt(
    function: Callable[..., Any],
    request: Request,
    specs: Mapping[str, Spec],
    options: Mapping[str, Any],
) -> Listing:
    """The stage of every kernel that the function launches, one after the other."""
    chosen = (request.configuration or {}).values()
    if any(value is not None for value in chosen) or request.cube_dim is not None:
        raise misuse(
            "a prebuilt function chooses its own line size, plane and grid",
            "leave out --line-size, --plane-dim, --vectorise and --cube-dim",
        )
    try:
        launches = record(function, specs, options, resolve_target(request.target))
    except TypeError as error:
        raise misuse(str(error), "arrays go to --arg, everything else to --comptime") from None
    if not launches:
        raise misuse(f"`{function.__name__}` launches nothing for these arguments")
    listings = [_listing(launch, request) for launch in launches]
    return listings[0] if len(listings) == 1 else _join(launches, listings, request.wanted_stage)


def _listing(launch: Launch, request: Request) -> Listing:
    text = launch.launcher.inspect(
        target=request.target, stage=request.wanted_stage, comptime=dict(launch.arguments)
    )
    return text if isinstance(text, Listing) else Listing(text)


def _join(launches: Sequence[Launch], listings: Sequence[Listing], stage: str) -> Listing:
    """All listings, each under a heading, with their places."""
    lines: list[tuple[str, Place | None]] = []
    for k, (launch, listing) in enumerate(zip(launches, listings, strict=True), 1):
        head = f"{_COMMENTS.get(stage, ';')} launch {k} of {len(launches)}"
        lines.append((f"{head}: {launch.kernel.__name__}, {launch.cubes} cubes", None))
        lines += [(t, listing.places.get(n)) for n, t in enumerate(listing.splitlines(), 1)]
        lines.append(("", None))
    return Listing.of(lines[:-1])
