"""The soak counts what its children say, and a child that dies is a find."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from tests.fuzz import __main__ as soak
from tests.fuzz.child import Chunk
from tests.fuzz.families import FAMILIES, batches

DYING = """
import json, os, sys
start, count = int(sys.argv[1]), int(sys.argv[2])
for seed in range(start, start + count):
    print(json.dumps({"begin": seed, "end": seed + 1}), flush=True)
    if seed == 3:
        os.abort()
    if seed == 5:
        print(json.dumps({"seed": seed, "kind": "mismatch", "text": "x"}))
    print(json.dumps({"ran": 1}), flush=True)
"""


@dataclass(frozen=True)
class Dying(Chunk):
    """Kernels of which the fourth ends the process and the sixth is wrong."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", DYING, str(self.start), str(self.count)]

    def after(self, seed: int) -> Chunk:
        return Dying(self.family, seed, self.start + self.count - seed)


def test_a_crash_is_a_find_and_the_rest_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    tally = soak.Tally()
    soak.child(Dying("wide", 0, 8), tally)
    assert tally.ran["wide"] == 8
    assert tally.finds == [("wide", 3, "crash"), ("wide", 5, "mismatch")]
    assert "wide 3: crash" in capsys.readouterr().out


@pytest.mark.parametrize("family", FAMILIES)
def test_a_child_runs_each_family(family: str) -> None:
    """In its own process, where passes are verified once: tests verify each."""
    tally = soak.Tally()
    soak.child(Chunk(family, 34_000_001, 1), tally)
    assert (tally.ran[family], tally.finds) == (1, [])


def test_all_seeds_are_run_once() -> None:
    chunks = list(soak._chunks(100, 5000, None, None))
    assert sum(chunk.count for chunk in chunks) == 5000
    for family in FAMILIES:
        seeds = [
            seed
            for chunk in chunks
            if chunk.family == family
            for batch in batches(family, chunk.start, chunk.count)
            for seed in batch
        ]
        assert sorted(seeds) == list(range(100, 100 + len(seeds)))


def test_batches_begin_at_multiples() -> None:
    size = FAMILIES["typed"].batch
    assert next(batches("typed", 3, 2 * size)) == range(3, size)
    assert all(b.start % size == 0 for b in [*batches("typed", 3, 2 * size)][1:])


def test_a_chunk_of_each_family_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The protocol between child and parent, on kernels that are right."""
    tally = soak.Tally()
    soak.child(Chunk("classic", 3, 2), tally)
    assert (tally.ran["classic"], tally.finds) == (2, []), capsys.readouterr().out
