"""Devices that tests make up have names of real ones: nothing that was loaded may stay."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import lru_cache

from cubepy.jit.kernel import CubeKernel
from cubepy.kernels.calls.plans import Plans
from cubepy.runtimes import registry


def keepers() -> list[CubeKernel | Plans]:
    """What holds things of devices, but for frozen objects."""
    return [found for found in gc.get_objects() if isinstance(found, CubeKernel | Plans)]


@lru_cache(maxsize=1)
def frozen_keepers() -> list[CubeKernel | Plans]:
    """Those of them that were frozen when the first device was made up."""
    gc.unfreeze()
    gc.collect()
    found = keepers()
    gc.freeze()
    return found


def forget_devices(frozen: Iterable[CubeKernel | Plans] = ()) -> None:
    """Devices are opened again, and kernels compiled for them, at the next use. `frozen`: keepers
    that the collector does not look at."""
    registry._opened.clear()
    for found in [*keepers(), *frozen]:
        if isinstance(found, CubeKernel):
            found.fast = None
            found.made.clear()
            found._configured.clear()  # they keep streams
            for table in found.native._tables.values() if found.native else ():
                table._learned.clear()  # launchers keep it
                table._write()
        else:  # a launch is in the stream of the device it was made on
            found._made.clear()
            found.short._made.clear()
