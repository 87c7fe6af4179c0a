"""Everything that a launch may choose about code, in one record.

It is what `configure` changes, what compilers take, and a part of every key of compiled code.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from cubepy.config import get
from cubepy.record import dataclass
from cubepy.targets import LAUNCH_ATTRIBUTES, Target

SETTINGS = ("checked", "opt_level")
"""Options that settings may choose at any time, so that each launch asks for them. `scratch_bytes`
only refuses kernels, which is asked when they are compiled."""

_ATTRIBUTES = tuple(sorted(LAUNCH_ATTRIBUTES.items()))


@dataclass(frozen=True, slots=True)
class Options:
    """What changes the code of a kernel, besides its arguments and the target.

    `line_size`: lanes of line-typed tensors, or "auto". `plane_dim`: emulate planes of this size.
    `checked`: test every access, `assert` and integer division. `contract`: fuse a*b+c.
    `fast_math`: allow reassociation, reciprocals and ignoring the sign of zero. `opt_level` and
    `scratch_bytes`: see `config`. `cluster`, `registers`, `cubes_per_sm`: attributes of a launch,
    see `targets.LAUNCH_ATTRIBUTES`. `vectorise`: on CPUs, whether units become lanes of lines, see
    `passes/vectorise.py`. Where a setting is None it is as `config` says, or as the
    target has it; see `in_force`.
    """

    line_size: int | str = "auto"
    plane_dim: int | None = None
    checked: bool | None = None
    contract: bool = True
    fast_math: bool = False
    opt_level: int | None = None
    scratch_bytes: int | None = None
    cluster: tuple[int, int, int] | None = None
    registers: int | None = None
    cubes_per_sm: int | None = None
    vectorise: bool | str = "auto"

    @property
    def is_checked(self) -> bool:
        """As chosen, else as CUBEPY_CHECKED says."""
        return get("checked") if self.checked is None else self.checked

    @property
    def level(self) -> int:
        """The optimisation level of the CPU compiler: as chosen, else as the settings say."""
        return get("opt_level") if self.opt_level is None else self.opt_level

    @property
    def scratch_limit(self) -> int:
        """The most bytes of a cube's memory on a CPU: as chosen, else as the settings say."""
        return get("scratch_bytes") if self.scratch_bytes is None else self.scratch_bytes

    def by_settings(self) -> tuple[bool, int]:
        """What the settings of the moment make of these options; see `SETTINGS`."""
        return self.is_checked, self.level

    def in_force(self) -> Options:
        """These options with the settings of the moment, so that none is read later."""
        return _resolved(self, *self.by_settings(), self.scratch_limit)

    @property
    def clusters(self) -> tuple[int, int, int]:
        """Cubes along each axis that run together."""
        return self.cluster or (1, 1, 1)

    def attributes_on(self, target: Target) -> tuple[tuple[str, Any], ...]:
        """What code for a target depends on, by name: hints that it does not take are left out."""
        return tuple(
            [
                (name, value)
                for name, row in _ATTRIBUTES
                if (value := getattr(self, name)) is not None
                and (target.kind in row.kinds or not row.is_hint)
            ]
        )


@lru_cache(maxsize=256)
def _resolved(options: Options, checked: bool, level: int, scratch: int) -> Options:
    return replace(options, checked=checked, opt_level=level, scratch_bytes=scratch)
