"""Long checks of the cache: `python -m tests.cache.soak kills | storm | flips [N]`.

`kills`: N writers (1,000) are killed at random moments while this process reads. `storm`: N rounds
(50) of 16 processes that start together on an empty cache; results are right and each thing is
compiled once. `flips`: every byte of the entries of a kernel is flipped in turn; each is a miss.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRITER = """
import sys
from cubepy.cache.store import Store
from cubepy.cache.entry import Entry
s = Store(sys.argv[1], 1 << 30)
print("ready", flush=True)
n = 0
while True:
    n += 1
    with s.lock(f"{n % 7:064x}"):
        s.put(Entry(f"{n % 7:064x}", {"n": n}, bytes([n % 256]) * (1000 * (n % 90))))
"""


def kills(count: int) -> None:
    """Kill writers; count torn reads and files that were left aside."""
    from cubepy.cache.store import Store

    folder = tempfile.mkdtemp(prefix="cubepy-soak-")
    reader, wrong, reads, stale = Store(folder, 1 << 30), 0, 0, 0
    for _ in range(0, count, 4):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE)
            for _ in range(4)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            time.sleep(random.random() * 0.01)
            for k in range(7):
                found = reader.get(f"{k:064x}")
                reads += found is not None
                wrong += found is not None and found.body != bytes([found.header["n"] % 256]) * (
                    1000 * (found.header["n"] % 90)
                )
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.communicate()
    aside = list(Path(folder).rglob("*.tmp"))
    for path in aside:
        os.utime(path, (1, 1))
    reader._written = 0
    from cubepy.cache.entry import Entry

    reader.put(Entry("f" * 64, {}, b""))
    stale = len(list(Path(folder).rglob("*.tmp")))
    print(f"{count} kills, {reads} entries read, {wrong} wrong")
    print(f"{len(aside)} files left aside, {stale} after they were collected")
    shutil.rmtree(folder)
    assert not wrong and not stale


def storm(rounds: int) -> None:
    """Processes that start together on an empty cache."""
    from tests.cache.test_processes import COUNTED, SCRIPT

    folder = Path(tempfile.mkdtemp(prefix="cubepy-soak-"))
    script = folder / "script.py"
    script.write_text(COUNTED + SCRIPT.format(more=1))
    compiled: list[int] = []
    for number in range(rounds):
        environment = os.environ | {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(folder / "c")}
        shutil.rmtree(folder / "c", ignore_errors=True)
        started = [
            subprocess.Popen(
                [sys.executable, str(script)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(16)
        ]
        total = 0
        for process in started:
            out, errors = process.communicate()
            assert process.returncode == 0 and not errors, errors
            total += int(out.split()[-1])
        compiled.append(total)
        print(f"round {number}: {total} modules compiled by 16 processes", flush=True)
    assert len(set(compiled)) == 1, compiled
    shutil.rmtree(folder)


def flips(step: int) -> None:
    """Every `step`-th byte of a kernel's entries."""
    import numpy as np

    import cubepy as cp
    from cubepy.cache.store import Store

    @cp.cube
    def k(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * 2

    folder = tempfile.mkdtemp(prefix="cubepy-soak-")
    x = np.arange(8, dtype=np.float32)
    with cp.settings(cache=True, cache_dir=folder):
        k.over(x)(x, x.copy())
    store, tried = Store(folder, 1 << 30), 0
    for path in Path(folder, "code-1").iterdir():
        if len(path.name) != 64:
            continue
        data = path.read_bytes()
        assert store.get(path.name) is not None
        for position in range(0, len(data), step):
            changed = bytearray(data)
            changed[position] ^= 1 << random.randrange(8)
            path.write_bytes(changed)
            assert store.get(path.name) is None, position
            tried += 1
        path.write_bytes(data)
    print(f"{tried} flipped bytes, each a miss")
    shutil.rmtree(folder)


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    number = int(sys.argv[2]) if len(sys.argv) > 2 else {"kills": 1000, "storm": 50}.get(which, 1)
    {"kills": kills, "storm": storm, "flips": flips}[which](number)
