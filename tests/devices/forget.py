"""Devices that tests make up have names of real ones: nothing that was loaded may stay."""

from __future__ import annotations

import gc

from cubepy.jit.kernel import CubeKernel
from cubepy.kernels.calls.plans import Plans
from cubepy.runtimes import registry


def forget_devices() -> None:
    """Devices are opened again, and kernels compiled for them, at the next use."""
    registry._opened.clear()
    for found in gc.get_objects():
        if isinstance(found, CubeKernel):
            found.fast = None
            found.made.clear()
            found._configured.clear()  # they keep streams
            for table in found.native._tables.values() if found.native else ():
                table._learned.clear()  # launchers keep it
                table._write()
        elif isinstance(found, Plans):  # a launch is in the stream of the device it was made on
            found._made.clear()
            found.short._made.clear()
