"""`cubepy cache`: what it lists, why code is compiled again, and what it removes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubepy.cache.folder import IS_SUPPORTED

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the cache is POSIX only")

TEXT = """
import numpy as np
import cubepy as cp
N = {n}
def h(v):
    return v * N
def unknown():
    return len(open(__file__).read())
@cp.cube
def k(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = h(x.flat[i])
@cp.cube
def never(x):
    x[0] = unknown()
"""
RUN = "--arg", "x=f32[64]", "--arg", "out=f32[64]", "--over", "64"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    environment = os.environ | {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(tmp_path / "c")}

    def run(*arguments: str, **more: str) -> Any:
        command = [sys.executable, "-m", "cubepy.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment | more)

    return run


def test_the_life_of_an_entry(command: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(TEXT.format(n=3))
    reference = f"{file}:k"
    done = command("run", reference, *RUN)
    assert done.returncode == 0, done.stderr
    listed = json.loads(command("cache", "list", "--json").stdout)
    assert listed["off"] == "" and listed["bytes"] > 0
    assert {row["kind"] for row in listed["entries"]} == {"code", "facts", "object"}
    assert {row["kernel"] for row in listed["entries"] if row["kind"] == "code"} == {"k"}
    found = json.loads(command("cache", "why", reference, "--json").stdout)
    assert [row["changed"] for row in found["entries"]] == [[], []]

    file.write_text(TEXT.format(n=4))
    found = json.loads(command("cache", "why", reference, "--json").stdout)
    assert [row["changed"] for row in found["entries"]] == [["h: N"], ["h: N"]]
    text = command("cache", "why", f"{file}:never").stdout
    assert "never kept: " in text and "open` may read state" in text

    assert command("cache", "verify").returncode == 0
    entry = tmp_path / "c" / "code-1" / listed["entries"][0]["key"]
    entry.write_bytes(entry.read_bytes()[:-1])
    verified = command("cache", "verify", "--json")
    assert verified.returncode == 1 and len(json.loads(verified.stdout)["removed"]) == 1
    assert json.loads(command("cache", "clear", "--json").stdout)["removed"] >= 3
    assert json.loads(command("cache", "list", "--json").stdout)["entries"] == []


def test_objects_of_drivers_are_not_called_outdated(tmp_path: Path) -> None:
    from cubepy import settings
    from cubepy.cache.objects import kept_object
    from cubepy.cli.caching import explain
    from tests.cli import kernels_file

    with settings(cache=True, cache_dir=str(tmp_path / "c")):
        assert kept_object("double_all", "text", lambda: b"binary") == b"binary"
        assert explain(kernels_file.double_all)["entries"] == []


def test_it_says_why_nothing_is_kept(command: Callable[..., Any]) -> None:
    lost = command("cache", "list", CUBEPY_CACHE_DIR="/proc/cubepy")
    assert "nothing is kept: " in lost.stdout
    assert "CUBEPY_CACHE is 0" in command("cache", "list", CUBEPY_CACHE="0").stdout
    assert "entries" in command("cache").stdout
