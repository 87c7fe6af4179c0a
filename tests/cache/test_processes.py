"""The cache between processes: what a second one does without, and what many do at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubepy.cache.folder import IS_SUPPORTED
from tests.cache.conftest import Cache, X, run

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the cache is POSIX only")

SCRIPT = """
import sys, threading
import numpy as np
import cubepy as cp

@cp.cube
def k(x, out, factor: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * factor + {more}

@cp.cube
def row(x, out):
    part = cp.local(40000, cp.f32)
    for i in range(x.shape[0]):
        part[i] = x[i] + 1
    for i in range(x.shape[0]):
        out[x.shape[0] - 1 - i] = part[i]

x = np.arange(100, dtype=np.float32)
out = np.full_like(x, np.nan)
k.over(out)(x, out, 2.0)
assert (out == x * 2 + {more}).all()
native = {{n.rpartition(".")[2] for n in sys.modules if "native.launching." in n}}
assert native <= {{"callables", "process", "state"}}, "a first launch goes through Python"
row[1, 1](x, out)
assert (out == (x + 1)[::-1]).all()
big = np.ones(1 << 18, np.float32)
k.over(big)(big, big, 3.0)  # in place, and by the thread pool
assert (big == 3 + {more}).all()
for _ in range(3):  # the last one natively
    assert (cp.kernels.map(lambda v: v * 2 + {more}, x) == x * 2 + {more}).all()
    assert cp.kernels.sum(x) == 4950
traced = "cubepy.frontend.tracer" in sys.modules  # what a hit needs is imported alone
optimised = any(n.startswith(("cubepy.passes.", "cubepy.compilers.llvm")) for n in sys.modules)
print(int(traced), int(optimised), flush=True)
"""
COUNTED = """
import llvmlite.binding as binding
parse = binding.parse_assembly
parsed = []
binding.parse_assembly = lambda *a: (parsed.append(1), parse(*a))[1]
import atexit
atexit.register(lambda: print("parsed", len(parsed)))
"""


def start(path: Path, folder: Path | str, **environment: str) -> subprocess.Popen[str]:
    own = {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(folder), **environment}
    return subprocess.Popen(
        [sys.executable, str(path)],
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out, errors


def script(tmp_path: Path, more: int = 1) -> Path:
    path = tmp_path / "script.py"
    path.write_text(COUNTED + SCRIPT.format(more=more))
    return path


def test_a_second_process_neither_traces_nor_optimises(tmp_path: Path) -> None:
    path = script(tmp_path)
    assert finish(start(path, tmp_path / "c"))[0].startswith("1 1\n")
    assert finish(start(path, tmp_path / "c")) == ("0 0\nparsed 0\n", "")
    path = script(tmp_path, more=2)
    assert finish(start(path, tmp_path / "c"))[0].startswith("1 1\n")
    path = script(tmp_path)
    assert finish(start(path, tmp_path / "c")) == ("0 0\nparsed 0\n", "")
    assert finish(start(path, tmp_path / "c", CUBEPY_CACHE="0"))[0].startswith("1 1\n")


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    path = script(tmp_path)
    started = [start(path, tmp_path / "c") for _ in range(6)]
    parsed = [int(finish(process)[0].split()[-1]) for process in started]
    alone = start(path, tmp_path / "other")
    assert sum(parsed) == int(finish(alone)[0].split()[-1])


@pytest.mark.parametrize("folder", ["/proc/cubepy", "relative"])
def test_a_place_that_cannot_be_is_one_warning(folder: str, tmp_path: Path) -> None:
    _, errors = finish(start(script(tmp_path), folder))
    assert errors.count("RuntimeWarning") == 1 and "CUBEPY_CACHE_DIR" in errors


def test_the_last_words_of_a_kept_kernel(tmp_path: Path) -> None:
    path = tmp_path / "crash.py"
    path.write_text(
        "import numpy as np, cubepy as cp\n@cp.cube\ndef wild(x):\n"
        "    x[cp.ABSOLUTE_POS + 2**44] = 1.0\nwild[1, 1](np.zeros(4, np.float32))\n"
    )
    said: list[str] = []
    for _ in range(2):
        process = start(path, tmp_path / "c")
        said.append(process.communicate(timeout=60)[1])
        assert process.returncode < 0
    assert said[0] == said[1] and "`wild` ran; rerun with CUBEPY_CHECKED=1" in said[0]


def test_threads_that_ask_together_compile_once(cache: Cache, load: Any) -> None:
    text = (
        "@cp.cube\ndef k(x, out):\n    i = cp.ABSOLUTE_POS\n"
        "    if i < out.size:\n        out.flat[i] = x.flat[i] * 5\n"
    )
    kernels = [load(text, name=f"user_{n}").k for n in range(4)]  # as of four modules
    results: list[Any] = []
    barrier = threading.Barrier(24)

    def ask(n: int) -> None:
        import cubepy as cp

        with cp.settings(cache=True, cache_dir=str(cache.path)):  # settings are a thread's own
            barrier.wait()
            results.append(run(kernels[n % 4]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24
    for result in results:
        np.testing.assert_array_equal(result, X * 5)
    assert cache.counts()[1] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_finds_what_its_parent_kept(cache: Cache, load: Any) -> None:
    text = (
        "@cp.cube\ndef k(x, out):\n    i = cp.ABSOLUTE_POS\n"
        "    if i < out.size:\n        out.flat[i] = x.flat[i] * {n}\n"
    )
    run(load(text.format(n=6)).k)
    module, other = load(text.format(n=6)), load(text.format(n=7), name="user_other")
    cache.counts()
    pid = os.fork()
    if not pid:
        try:
            is_right = (run(module.k) == X * 6).all() and cache.counts() == (0, 0)
            is_right = is_right and (run(other.k) == X * 7).all()
            os._exit(0 if is_right else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_array_equal(run(other.k), X * 7)
    assert cache.counts() == (0, 0)  # the child kept it
