"""How long launches take on their devices: `cp.profile()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from cubepy.config import get, settings
from cubepy.record import dataclass
from cubepy.scoped import Scoped

_profile: Scoped[Profile] = Scoped("cubepy_profile")


HEADINGS: tuple[str, ...] = (
    "kernel",
    "device",
    "launches",
    "total ms",
    "share",
    "mean us",
    "least",
    "most",
)
"""Of the columns of a profile's table."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One launch: the kernel's name, the device's, and the time on the device in milliseconds."""

    kernel: str
    device: str
    milliseconds: float


class Profile:
    """The timings of the launches in a `with` block, in order; see `profile`."""

    def __init__(self) -> None:
        self._timings: list[Timing | Callable[[], Timing]] = []
        self._block = ExitStack()

    def __enter__(self) -> Profile:
        # Launches in a block of settings go through Python, which looks for a profile.
        self._block.enter_context(settings(opt_level=get("opt_level")))
        self._block.enter_context(_profile.holding(self))
        return self

    def __exit__(self, *raised: object) -> None:
        self._block.close()
        self._timings = list(self)

    def __iter__(self) -> Iterator[Timing]:
        """The timings; waits for launches that are not done."""
        return (t if isinstance(t, Timing) else t() for t in self._timings)

    def __len__(self) -> int:
        return len(self._timings)

    @property
    def milliseconds(self) -> float:
        """The sum of all timings."""
        return sum(t.milliseconds for t in self)

    def by_kernel(self) -> dict[tuple[str, str], list[float]]:
        """The milliseconds of each kernel's launches, by its name and the device's; the kernel that
        took most comes first."""
        found: dict[tuple[str, str], list[float]] = {}
        for t in self:
            found.setdefault((t.kernel, t.device), []).append(t.milliseconds)
        return dict(sorted(found.items(), key=lambda pair: -sum(pair[1])))

    def __str__(self) -> str:
        """A table with a row for each kernel."""
        total = self.milliseconds
        rows: list[tuple[str, ...]] = [
            ("kernel", "device", "launches", "total ms", "share", "mean us", "least", "most")
        ]
        for (kernel, device), times in self.by_kernel().items():
            share = f"{100 * sum(times) / total:.0f} %" if total else ""
            spread = (f"{1e3 * t:.1f}" for t in (sum(times) / len(times), min(times), max(times)))
            rows.append((kernel, device, str(len(times)), f"{sum(times):.3f}", share, *spread))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(_line(row, widths) for row in rows)

    def time(self, kernel: str, device: Any, queue: int | None, launch: Callable[[], Any]) -> None:
        """Launch, and note how long it took on the device."""
        if hasattr(device, "new_event"):
            self._timings.append(_between_events(kernel, device, queue, launch))
            return
        device.synchronize(queue)
        began = perf_counter()
        try:
            launch()
        finally:
            device.synchronize(queue)
            took = 1e3 * (perf_counter() - began)
            self._timings.append(Timing(kernel, device.name, took))


def profile() -> Profile:
    """Time launches on their devices, of kernels and prebuilt functions, inside a `with` block.

    `with cp.profile() as timings:` gives a `Profile`: iterate over it for a `Timing` of each launch
    (kernel, device, milliseconds), print it for a table, or take `by_kernel()`. On GPUs of NVIDIA
    the driver notes the times by events before and behind the kernel, in its stream, and launches
    stay asynchronous; elsewhere the processor's clock is read, each launch is waited for, and its
    time includes that of reaching the device. Copies and compilation are not counted. Launches of
    other threads (or tasks) are not seen; those in the block go through Python, which takes some
    microseconds more for each, beside the times that are noted.
    """
    return Profile()


def current_profile() -> Profile | None:
    """The profile that launches of this context are noted in."""
    return _profile.get()


def _between_events(
    kernel: str, device: Any, queue: int | None, launch: Callable[[], Any]
) -> Callable[[], Timing]:
    """Launch between two events; gives what waits for the second and computes the time."""
    start, end = device.new_event(), device.new_event()
    device.record_event(start.handle, queue)
    launch()
    device.record_event(end.handle, queue)

    def timing() -> Timing:
        device.wait_for_event(end.handle)
        return Timing(kernel, device.name, device.milliseconds(start.handle, end.handle))

    return timing


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """Names begin at the left of their columns, numbers end at the right."""
    cells = [
        c.ljust(w) if k < 2 else c.rjust(w)
        for k, (c, w) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
