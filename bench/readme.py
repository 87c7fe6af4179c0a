"""The tables of the README, from recorded results: `python -m bench.readme` rewrites them.

`python -m bench --json bench/results/reference.json` records the first, `python -m bench.gpu --json
bench/results/gpu.json` the second.
"""

from __future__ import annotations

import json
import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import format_seconds
from bench.results import Report, RowResult

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
PRODUCTS = (
    ("gpu_matmul", "cuBLAS", ("square 4096x4096x4096 bfloat16", "square 8192x8192x8192 bfloat16")),
    (
        "gpu_matmul",
        "cuBLAS",
        ("bytes 8192x8192x8192 float8_e4m3fn fast", "bytes 8192x8192x8192 int8"),
    ),
    ("gpu_attention", "torch's fastest", ("4x16x4096x128 bfloat16", "4x16x4096x128 float16")),
    ("gpu_attention", "the fastest in bf16", ("4x16x4096x128 float8",)),
    ("gpu_convolution", "cuDNN", ("forward 32x64x56x56 3x3", "forward 32x256x14x14")),
)
"""Files of results, the peer, and the rows that the README shows."""
README = ROOT / "README.md"
SHOWN = {
    "max_pool2d": "",
    "matmul": "",
    "conv2d": "1 of ",
    "attention": "",
    "softmax": "",
    "layer norm": "",
    "max": "",
    "argmax": "",
    "sum": "",
    "cumsum": "",
    "elementwise": "",
}
"""Groups of rows that the README shows, and how their labels begin; the JSON file has all."""
BLOCK = r"(<!-- {name} -->\n).*?(<!-- end -->)"


def cpu_table() -> str:
    """A row for each comparison with torch, by the claim that is named first."""
    report = Report.from_json((RESULTS / "reference.json").read_text(encoding="utf-8"))
    head = ["| work | CubePy | torch | numba | faster than torch |", "|---|---|---|---|---|"]
    shown = [row for group, start in SHOWN.items() for row in _rows_shown(report, group, start)]
    return "\n".join([*head, *map(_cpu_row, shown)])


def _rows_shown(report: Report, group: str, start: str) -> list[RowResult]:
    rows = [row for row in report.rows if row.group == group and row.label.startswith(start)]
    return [row for row in rows if row.verdicts and _fastest(row, "torch") is not None]


def _cpu_row(row: RowResult) -> str:
    """Torch and numba by their fastest way."""
    ours = row.find_timing(row.verdicts[0].ours)
    torch, numba = (_fastest(row, who) for who in ("torch", "numba"))
    assert ours is not None and torch is not None
    cells = [f"{row.group} {row.label}", format_seconds(ours.median), format_seconds(torch)]
    cells += [format_seconds(numba) if numba else "", _ratio(torch / ours.median)]
    return f"| {' | '.join(cells)} |"


def _fastest(row: RowResult, who: str) -> float | None:
    return min((t.median for t in row.timings if t.who == who), default=None)


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.2g}x"


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


def product_table() -> str:
    """Products, attention and convolution on tensor cores, beside NVIDIA's libraries."""
    head = ["| work | CubePy | peer | ratio |", "|---|---|---|---|"]
    rows = [_mean_row(_rows_of("gpu_matmul"))]
    for name, peer, wanted in PRODUCTS:
        chosen = [row for row in _rows_of(name) if any(text in row["work"] for text in wanted)]
        rows += [_product_row(row, peer) for row in chosen]
    return "\n".join([*head, *rows])


def _rows_of(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def _product_row(row: dict[str, Any], peer: str) -> str:
    ours = row.get("tflops") or row["ours"]
    cells = [row["work"], f"{ours:.0f} TFLOP/s", f"{peer} {ours / row['ratio']:.0f}"]
    return f"| {' | '.join(cells)} | {row['ratio']:.2f}x |"


def _mean_row(rows: list[dict[str, Any]]) -> str:
    """Over all layers of the prefill."""
    ratios = [row["ratio"] for row in rows if row["work"].startswith("prefill")]
    mean, least = statistics.geometric_mean(ratios), min(ratios)
    work = f"{len(ratios)} products of Llama 3's layers, bf16, 512 to 8192 tokens, geometric mean"
    return f"| {work} | | cuBLAS | {mean:.3f}x, least {least:.2f}x |"


def launch_table() -> str:
    """What a launch costs the host, in the order of the record."""
    found: dict[str, Any] = json.loads((RESULTS / "gpu_launch.json").read_text(encoding="utf-8"))
    rows = [
        f"| {name} | {us:.{1 if us > 0.1 else 2}f} us |" for name, us in found["launch_us"].items()
    ]
    return "\n".join(("| launch | host |", "|---|---|", *rows))


def filled(text: str) -> str:
    """The README with the tables of today's records."""
    tables = {
        "cpu": cpu_table(),
        "gpu": gpu_table(),
        "products": product_table(),
        "launch": launch_table(),
    }
    for name, table in tables.items():
        pattern = BLOCK.format(name=name)
        text, count = re.subn(pattern, partial(_block, table), text, flags=re.DOTALL)
        assert count == 1, f"the README has {count} blocks `{name}`"
    return text


def _block(table: str, found: re.Match[str]) -> str:
    return f"{found[1]}\n{table}\n\n{found[2]}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
