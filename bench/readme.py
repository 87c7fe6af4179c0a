"""The tables of the README, from recorded results: `python -m bench.readme` rewrites them.

`python -m bench --json bench/results/reference.json` records the first, `python -m bench.gpu --json
bench/results/gpu.json` the second.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import format_seconds
from bench.results import Report, RowResult

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
SHOWN = ("max_pool2d", "elementwise", "sum")
"""Groups of rows that the README shows; the JSON file has all."""
BLOCK = r"(<!-- {name} -->\n).*?(<!-- end -->)"


def cpu_table() -> str:
    """A row for each comparison with a result that the caller gave."""
    report = Report.from_json((RESULTS / "reference.json").read_text(encoding="utf-8"))
    head = ["| work | CubePy | torch | numba | faster than torch |", "|---|---|---|---|---|"]
    rows = [_cpu_row(row) for row in report.rows if row.group in SHOWN]
    return "\n".join([*head, *rows])


def _cpu_row(row: RowResult) -> str:
    ours, torch, numba = (_seconds(row, f"{who} out") for who in ("cubepy", "torch", "numba"))
    assert ours is not None and torch is not None
    cells = [f"{row.group} {row.label}", format_seconds(ours), format_seconds(torch)]
    cells += [format_seconds(numba) if numba else "", _ratio(torch / ours)]
    return f"| {' | '.join(cells)} |"


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.2g}x"


def _seconds(row: RowResult, name: str) -> float | None:
    timing = row.find_timing(name)
    return None if timing is None else timing.median


def gpu_table() -> str:
    """A row for each kernel, beside torch."""
    found: dict[str, Any] = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))
    head = ["| work | CubePy | GB/s | torch | torch.compile |", "|---|---|---|---|---|"]
    rows = [_gpu_row(row) for row in found["rows"]]
    return "\n".join([*head, *rows])


def _gpu_row(row: dict[str, Any]) -> str:
    peers = {name.split(" ")[0]: ms for name, ms in row["peers"].items()}
    cells = [row["work"], f"{row['ms']:.4f} ms", f"{row['gbps']:.0f}"]
    cells += [
        f"{peers[name]:.4f} ms" if name in peers else "" for name in ("torch", "torch.compile")
    ]
    return f"| {' | '.join(cells)} |"


def launch_table() -> str:
    """What a launch costs the host, in the order of the record."""
    found: dict[str, Any] = json.loads((RESULTS / "gpu_launch.json").read_text(encoding="utf-8"))
    rows = [f"| {name} | {us:.1f} us |" for name, us in found["launch_us"].items()]
    return "\n".join(("| launch | host |", "|---|---|", *rows))


def filled(text: str) -> str:
    """The README with the tables of today's records."""
    tables = {"cpu": cpu_table(), "gpu": gpu_table(), "launch": launch_table()}
    for name, table in tables.items():
        pattern = BLOCK.format(name=name)
        text, count = re.subn(pattern, partial(_block, table), text, flags=re.DOTALL)
        assert count == 1, f"the README has {count} blocks `{name}`"
    return text


def _block(table: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{table}\n\n{found[2]}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
