"""The native executor of launch plans, as LLVM IR: from a Python call to the kernel's entry.

`launch` has the signature of a vectorcall. It reads the arguments, finds the first plan of the
launcher's table that they match, fills the argument block and runs the cubes. Whatever it does not
know, it leaves to the launch in Python, before anything has been written; so it never decides that
an argument is wrong. The layout of tables is that of `tables`.

It calls nothing that could change a table, except for attributes of the user's objects; therefore
it holds the table's data meanwhile, and owns what those attributes gave.
"""

from __future__ import annotations

from cubepy.runtimes.native.launching import (
    describing,
    enqueuing,
    extents,
    frame,
    grids,
    guarding,
    matching,
    opencl,
    programs,
    reading,
    remembering,
    running,
    sharing,
)
from cubepy.runtimes.native.launching.frame import CONTEXT, DECLARATIONS
from cubepy.runtimes.native.launching.tables import Context


def text() -> str:
    """The module."""
    parts = (
        frame,
        reading,
        extents,
        matching,
        enqueuing,
        opencl,
        remembering,
        sharing,
        running,
        programs,
        describing,
        grids,
        guarding,
    )
    routines = [routine for part in parts for routine in part.routines()]
    context = f"@{CONTEXT} = global [{int(Context.SIZE)} x i64] zeroinitializer"
    return "\n\n".join((context, DECLARATIONS, *(r.text() for r in routines)))
