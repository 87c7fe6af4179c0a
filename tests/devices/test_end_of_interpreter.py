"""What the driver made is left alone at the interpreter's end, in whatever order modules go."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from cubepy.runtimes.cuda.code import Code
from cubepy.runtimes.cuda.memory import Allocation, PinnedAllocation
from cubepy.runtimes.cuda.queues import Handle

class Late:
    def __init__(self, cls, **attributes):
        self.held = object.__new__(cls)
        for name, value in attributes.items():
            setattr(self.held, name, value)

late = [Late(Allocation, address=4096), Late(PinnedAllocation), Late(Handle)]
late += [Late(Code, _modules={0: 1}, _contexts=object())]
# Modules are cleared one by one; what they hold dies after the names that its methods use.
sys.modules["cubepy.runtimes.cuda.memory"].late = late
del late
for module in ("memory", "queues", "code", "driver"):
    names = vars(sys.modules["cubepy.runtimes.cuda." + module])
    names.update({k: None for k in list(names) if not k.startswith("__") and k != "late"})
"""


def test_nothing_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
