"""The page about speed in the guide, from recorded results: `python -m bench.page` rewrites it.

`python -m bench.models --json bench/results/models_cpu.json` records a CPU's part, with `--device
cuda` and `models_h200.json` a GPU's, `python -m bench --only divergence --threads 1 --json
bench/results/divergence.json` that of units whose control flow differs, `--only positions` that of
places in arrays, `python -m bench.gpu_profile --json bench/results/gpu_profile.json` what binds
rows on a GPU.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from bench import roofline
from bench.gpu_profile import Profile
from bench.models.record import Record, Row
from bench.readme import RESULTS, ROOT
from bench.report import format_seconds
from bench.results import Report, RowResult

DOCS = ROOT / "docs"
PAGE = DOCS / "guide" / "speed.md"
MACHINES = {"cpu": "CPU", "h200": "H200"}
"""Names of records, and how tables call the machines."""
HEAD = """# How fast it is

Written by `python -m bench.page` from the records in `bench/results`; a test compares this page
with them. Each table names its command. Ratios say how many times CubePy is as fast as the peer, on
the same arrays, in turns, in one process; below 1 the peer is faster. The README has tables beside
cuBLAS, cuDNN and `torch.compile`.
"""
MODELS = """
## Layers of models

`python -m bench.models` runs what ResNet-50, BERT base and Llama 3 8B consist of, beside torch as
it is called without a compiler of graphs: on the CPU one image and 128 tokens in f32, on the GPU 32
images, 32 x 512 tokens and a prompt of 4,096 in bf16 (a choice of the next word in f32). Both sides
return new arrays. Where CubePy fuses, torch makes several calls: `matmul` with bias and gelu,
`silu(gate) * up`, `relu(x + y)`, weights of int8, and int8 by rows. Geometric means:
"""


def main() -> None:
    """Write the page and its pictures."""
    for path, text in made().items():
        path.write_text(text, encoding="utf-8")


def made() -> dict[Path, str]:
    """The files that the records make."""
    records = {name: Record.read(RESULTS / f"models_{name}.json") for name in MACHINES}
    divergence, positions = (_report(name) for name in ("divergence", "positions"))
    parts = [HEAD, MODELS, _families(records)]
    parts += [_machine(name, record) for name, record in records.items()]
    parts += [_profiles(), _divergence(divergence), _positions(positions)]
    pictures = {_picture(name): roofline.draw(record) for name, record in records.items()}
    return {PAGE: "\n".join(parts), **pictures}


def _report(name: str) -> Report:
    return Report.from_json((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _picture(name: str) -> Path:
    return PAGE.with_name(f"speed-{name}.svg")


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _families(records: dict[str, Record]) -> str:
    """A row for each family, with the mean of each machine and how many works it is of."""
    families = dict.fromkeys(row.family for r in records.values() for row in r.rows)
    head = ("family", *(f"{shown}, x torch" for shown in MACHINES.values()))
    rows = ((name, *(_mean(record, name) for record in records.values())) for name in families)
    return _table(head, rows)


def _mean(record: Record, family: str) -> str:
    ratios = [row.ratio for row in record.rows if row.family == family]
    return f"{statistics.geometric_mean(ratios):.2f} of {len(ratios)}" if ratios else ""


def _machine(name: str, record: Record) -> str:
    """The picture and the rows of a machine."""
    machine = "; ".join(f"{key}: {value}" for key, value in record.machine.items())
    roofs = record.roofs
    text = [f"## On the {MACHINES[name]}\n", f"{machine}.\n"]
    text.append(
        f"A large copy moves {roofs.copy:.0f} GB/s, a large product makes "
        f"{roofs.product / 1e3:.3g} TFLOP/s, by whoever is faster: the roofs of the picture. "
        "Arrays that stay in a cache may be above.\n\n"
        f"![Rooflines of the {MACHINES[name]}]({_picture(name).name})\n"
    )
    head = ("model", "family", "work", "CubePy", "", "torch", "ratio")
    text.append(_table(head, (_cells(row) for row in record.rows)))
    return "\n".join(text)


def _cells(row: Row) -> tuple[str, ...]:
    times = format_seconds(row.ours), row.rate(row.ours), format_seconds(row.theirs)
    return row.model, row.family, row.work, *times, f"{row.ratio:.2f}x"


def _profiles() -> str:
    """What binds the rows on a GPU that miss what was asked of them."""
    found = json.loads((RESULTS / "gpu_profile.json").read_text(encoding="utf-8"))
    head = (
        "work",
        "",
        "steady",
        "MHz",
        "W",
        "alone",
        "tensor",
        "FMA",
        "DRAM",
        "issue",
        "waits for",
    )
    return (
        "## What binds what is slower\n\n"
        f"`python -m bench.gpu_profile`, {found['device']}: rows of the README's tables that miss "
        "what was asked of them, beside the peer. Steady: a second of replays, with the clock and "
        "the power meanwhile (at most 1,980 MHz, 700 W). Alone: one launch by Nsight Compute, with "
        "the share of that time in which tensor cores, units for multiply-adds, memory and the "
        "issue of instructions reach their peak, and cycles for each instruction that warps wait. "
        "[Decision 32](../decisions/0032-what-binds.md) reads this table.\n\n"
        + _table(head, (_profile(Profile(**row)) for row in found["rows"]))
    )


def _profile(row: Profile) -> tuple[str, ...]:
    steady, alone = (format_seconds(ms * 1e-3) for ms in (row.steady_ms, row.alone_ms))
    shares = (f"{share:.1f} %" for share in (row.tensor, row.fma, row.dram, row.issue))
    stalls = ", ".join(f"{name.replace('_', ' ')} {n:.1f}" for name, n in row.stalls.items())
    clock = f"{row.mhz:.0f}", f"{row.watts:.0f}"
    return row.work, row.contender, steady, *clock, alone, *shares, stalls


def _divergence(report: Report) -> str:
    """Units whose control flow differs, beside numba's loops."""
    where = f"{report.machine['cpu']}, numba {report.machine['numba']}"
    head = ("work", "CubePy", "numba", "x numba", "x unit by unit")
    return (
        "## Units whose control flow differs\n\n"
        "`python -m bench --only divergence --threads 1`: a unit for each element, which become "
        f"lanes of lines on a CPU; {where}.\n\n"
        + _table(head, (_lanes(row) for row in report.rows))
    )


def _lanes(row: RowResult) -> tuple[str, ...]:
    ours, peer = row.find_timing("cubepy units as lanes"), row.find_timing("numba loop")
    speeds = (row.find_verdict("speed"), row.find_verdict("unit by unit"))
    times = (format_seconds(t.median) if t else "" for t in (ours, peer))
    return row.label, *times, *(f"{v.value:.2f}x" if v else "" for v in speeds)


def _positions(report: Report) -> str:
    """Units that find their place in arrays, beside numba's loops."""
    where = f"{report.machine['cpu']}, numba {report.machine['numba']}"
    return (
        "## Places in arrays\n\n"
        "`python -m bench --only positions`: a unit for each element, which finds its place by "
        f"division, or reads a point or a colour; {where}, "
        f"threads: {report.threads}.\n\n"
        + _table(("work", "CubePy", "numba", "x numba"), (_places(row) for row in report.rows))
    )


def _places(row: RowResult) -> tuple[str, ...]:
    times = (row.find_timing("cubepy out"), row.find_timing("numba loop"))
    speed = row.find_verdict("speed")
    shown = (format_seconds(t.median) if t else "" for t in times)
    return row.label, *shown, f"{speed.value:.2f}x" if speed else ""


if __name__ == "__main__":
    main()
