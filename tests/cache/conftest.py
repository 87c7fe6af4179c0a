"""A cache of its own for each test, and counts of what is traced and compiled."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.llvm import toolchain
from cubepy.frontend import specialise

_serial = itertools.count()


@dataclass
class Cache:
    """A folder of a test; `traces` and `builds` count since the last `forget`."""

    path: Path
    traces: int = 0
    builds: int = 0
    names: list[str] = field(default_factory=list)

    def counts(self) -> tuple[int, int]:
        """Traces and builds since this was asked before."""
        found = self.traces, self.builds
        self.traces = self.builds = 0
        return found

    def files(self) -> list[Path]:
        """The entries."""
        return sorted(p for p in (self.path / "code-1").iterdir() if len(p.name) == 64)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    found = Cache(tmp_path / "cache")
    trace, build = specialise.specialise, toolchain.to_object

    def traced(*args: Any) -> Any:
        found.traces += 1
        return trace(*args)

    def built(*args: Any) -> bytes:
        found.builds += 1
        return build(*args)

    monkeypatch.setattr(specialise, "specialise", traced)
    monkeypatch.setattr(toolchain, "to_object", built)
    with cp.settings(cache=True, cache_dir=str(found.path)):
        yield found


HEAD = "import cubepy as cp\nimport numpy as np\nimport math\nfrom dataclasses import dataclass\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """`load(text, helpers=text)`: a module of a new process, as far as kernels can see; what it
    imports as `helpers` is made of the other text."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def make(text: str, helpers: str | None = None, name: str = "user_kernels") -> Any:
        if helpers is not None:
            sys.modules.pop("user_helpers", None)
            sys.modules["user_helpers"] = _module(tmp_path / "user_helpers.py", helpers)
        return _module(tmp_path / f"{name}.py", text)

    yield make
    for name in [n for n in sys.modules if n.startswith("user_")]:
        del sys.modules[name]


def _module(path: Path, text: str) -> Any:
    """A file as a module. Each has a time of its own, so that its lines are read again."""
    import os

    path.write_text(HEAD + text)
    stamp = 1_600_000_000 + 10 * next(_serial)
    os.utime(path, (stamp, stamp))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    code = compile(path.read_text(), str(path), "exec")
    exec(code, module.__dict__)
    return module


X = np.linspace(-2, 3, 23).astype(np.float32)


def run(kernel: Any, *more: Any, **configured: Any) -> np.ndarray:
    """What a kernel of one input and one output gives."""
    out = np.full_like(X, np.nan)
    kernel = kernel.configure(**configured) if configured else kernel
    kernel.over(out)(X, out, *more)
    return out
