"""`cubepy run`: launch a kernel on arrays from files, and save what it wrote."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from cubepy.cli.failures import Failure, closest, misuse
from cubepy.cli.loading import load
from cubepy.cli.output import console, make_table, print_json, time_text
from cubepy.cli.values import read_argument, read_comptime, read_extents, split_pairs
from cubepy.ir.types import find_dtype
from cubepy.jit.kernel import CubeKernel, Launcher
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """The command line; `configuration` goes to `kernel.configure`."""

    kernel: str
    args: list[str]
    comptime: list[str]
    outputs: list[str]
    over: str
    per: str
    cube_dim: str | None
    configuration: Mapping[str, Any]


def show_run(request: Request, as_json: bool) -> None:
    """Run, save and report."""
    result = run_kernel(request)
    if as_json:
        print_json(result)
        return
    table = make_table("argument", "dtype", "shape", ">min", ">max", ">mean", "")
    for row in result["arguments"]:
        notes = ", ".join(filter(None, ("written" if row["written"] else "", row["saved"] or "")))
        numbers = ("" if row[k] is None else f"{row[k]:.6g}" for k in ("min", "max", "mean"))
        table.add_row(row["name"], row["dtype"], str(tuple(row["shape"])), *numbers, notes)
    out = console()
    seconds = time_text(result["seconds"])
    out.print(f"{result['kernel']} on {result['device']}: {seconds}, compilation included")
    out.print(table)


def run_kernel(request: Request) -> dict[str, Any]:
    """Launch once; what the arrays hold afterwards, as plain data."""
    module, name, kernel = load(request.kernel)
    if not isinstance(kernel, CubeKernel):
        raise misuse(f"`{name}` is a {type(kernel).__name__}, not a kernel")
    pairs = split_pairs("--arg", request.args)
    arguments = {k: read_argument(k, text) for k, text in pairs.items()}
    arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    files = _output_files(request, arrays)
    before = {k: v.copy() for k, v in arrays.items()}
    launcher = _launcher(kernel, request, arrays)
    begin = time.perf_counter()
    launcher(**arguments, **read_comptime(request.comptime, module))
    seconds = time.perf_counter() - begin
    _save(files, arrays)
    rows = [_describe(k, v, before[k], files.get(k)) for k, v in arrays.items()]
    device = request.configuration["device"]
    return {"kernel": name, "device": device, "seconds": seconds, "arguments": rows}


def _output_files(request: Request, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    files = {k: v.removeprefix("@") for k, v in split_pairs("--out", request.outputs).items()}
    for name in files:
        if name not in arrays:
            raise misuse(f"--out {name}: no array argument has that name", closest(name, arrays))
    return files


def _launcher(kernel: CubeKernel, request: Request, arrays: Mapping[str, np.ndarray]) -> Launcher:
    chosen = {k: v for k, v in request.configuration.items() if v is not None}
    dim = read_extents("--cube-dim", request.cube_dim) if request.cube_dim else None
    what = arrays[request.over] if request.over in arrays else _extents(request.over, arrays)
    return kernel.configure(**chosen).over(what, per=request.per, cube_dim=dim)


def _extents(text: str, arrays: Mapping[str, np.ndarray]) -> int | tuple[int, ...]:
    if text.isidentifier():
        raise misuse(f"--over {text}: no array argument has that name", closest(text, arrays))
    extents = read_extents("--over", text)
    return extents[0] if len(extents) == 1 else extents


def _save(files: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> None:
    for name, path in files.items():
        try:
            with open(path, "wb") as file:
                np.save(file, arrays[name], allow_pickle=False)
        except OSError as error:
            raise Failure(f"cannot write {path}: {error.strerror}") from None


def _describe(
    name: str, array: np.ndarray, before: np.ndarray, saved: str | None
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "written": array.tobytes() != before.tobytes(),
        "saved": saved,
    }
    statistics = ("min", "max", "mean")
    if not array.size or find_dtype(array.dtype) is None:
        return row | dict.fromkeys(statistics)
    numbers = array if array.dtype.kind in "biuf" else array.astype(np.float32)  # bf16, f8
    return row | {k: _finite(getattr(numbers, k)()) for k in statistics}


def _finite(value: Any) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if np.isfinite(value) else None
