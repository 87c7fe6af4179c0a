"""`cubepy doctor`: what is here, what is missing and how to install it, and whether it works."""

from __future__ import annotations

import importlib.util
import platform
from typing import Any

import numpy as np
import typer

import cubepy
from cubepy import config
from cubepy.cli.caching import state
from cubepy.cli.devices import describe, print_missing
from cubepy.cli.failures import FAILED
from cubepy.cli.output import bytes_text, console, make_table, print_json, time_text
from cubepy.cli.self_test import run_self_test
from cubepy.errors import Error
from cubepy.jit.miscompilations import examined, versions
from cubepy.runtimes.native.host import host_cpu, llvm_versions
from cubepy.runtimes.native.pool import get_pool, usable_cores
from cubepy.runtimes.registry import devices, missing

FEATURES = {
    "x86_64": ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vnni", "avx512bf16",
               "avx512fp16", "amx-tile", "amx-int8", "amx-bf16"),
    "aarch64": ("neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve", "sve2", "sme"),
}  # fmt: skip
"""Features that change what kernels can use, by architecture."""

OPTIONAL = {
    "pillow": ("PIL", "demo", "`cubepy demo` reads and writes pictures"),
    "scikit-image": ("skimage", "demo", "the photograph of `cubepy demo`"),
    "numba": ("numba", "bench", "a peer in `cubepy bench` and `cubepy demo`"),
    "matplotlib": ("matplotlib", "bench", "the plot of `cubepy bench`"),
    "torch": ("torch", "torch", "kernels on torch tensors; a peer in benchmarks"),
}
"""Optional packages: the module, the extra that installs it, and what it is for."""


def show_doctor(as_json: bool) -> None:
    """Print everything; exit code 1 where the self-test or a setting fails."""
    found = examine()
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not found["ok"]:
        raise typer.Exit(FAILED)


def examine() -> dict[str, Any]:
    """The state of this installation, as plain data."""
    settings = [_setting(row) for row in config.TABLE]
    test, miscompiled = run_self_test(), _miscompilations()
    return {
        "ok": test["ok"] and not any(row["error"] for row in settings) and _is_right(miscompiled),
        "versions": _versions(),
        "cpu": _cpu(),
        "devices": [describe(device) for device in devices()],
        "missing": missing(),
        "settings": settings,
        "packages": [_package(name) for name in OPTIONAL],
        "cache": {key: value for key, value in state().items() if key != "entries"},
        "self_test": test,
        "miscompilations": miscompiled,
    }


def _miscompilations() -> list[dict[str, Any]]:
    """For each GPU whether its compiler gets known hard cases right; run now if it never was."""
    found: list[dict[str, Any]] = []
    for device in devices():
        if device.target.kind != "cuda":
            continue
        row: dict[str, Any] = {"device": device.name, "versions": "", "wrong": {}, "error": ""}
        try:
            row |= {"versions": versions(device), "wrong": examined(device)}
        except Error as error:
            row["error"] = str(error)
        found.append(row)
    return found


def _is_right(miscompiled: list[dict[str, Any]]) -> bool:
    return not any(any(row["wrong"].values()) for row in miscompiled)


def _versions() -> dict[str, str]:
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    own = {"cubepy": cubepy.__version__, "python": python, "numpy": np.__version__}
    return {**own, **llvm_versions(), "system": platform.platform(terse=True)}


def _cpu() -> dict[str, Any]:
    name, features = host_cpu()
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    asked = FEATURES.get(machine, ())
    return {
        "name": devices()[0].properties.name,
        "llvm_name": name,
        "features": [f for f in asked if features.get(f)],
        "absent_features": [f for f in asked if not features.get(f)],
        "cores": usable_cores(),
        "threads": _threads(),
    }


def _threads() -> int | None:
    try:
        return get_pool(config.get("num_threads")).threads
    except Error:
        return None


def _setting(row: config.Setting) -> dict[str, Any]:
    found = {"variable": row.variable, "source": config.source(row.name), "doc": row.doc}
    try:
        return found | {"value": config.get(row.name), "error": ""}
    except Error as error:
        return found | {"value": None, "error": str(error)}


def _package(name: str) -> dict[str, Any]:
    module, extra, purpose = OPTIONAL[name]
    is_here = importlib.util.find_spec(module) is not None
    install = f"pip install 'cubepy-jit[{extra}]'"
    return {"name": name, "installed": is_here, "purpose": purpose, "install": install}


def _print(found: dict[str, Any]) -> None:
    _print_versions(found["versions"], found["cpu"])
    _print_devices(found["devices"], found["missing"])
    _print_settings(found["settings"])
    _print_missing(found["packages"])
    _print_cache(found["cache"])
    _print_test(found["self_test"])
    _print_miscompilations(found["miscompilations"])


def _print_versions(versions: dict[str, str], cpu: dict[str, Any]) -> None:
    table = make_table("", "")
    table.show_header = False
    for name, version in versions.items():
        table.add_row(name, version)
    absent = f"  [dim](not {' '.join(cpu['absent_features'])})[/dim]"
    table.add_row("processor", f"{cpu['name']} ({cpu['llvm_name']} to LLVM)")
    table.add_row(
        "features", " ".join(cpu["features"]) + (absent if cpu["absent_features"] else "")
    )
    table.add_row("threads", f"{cpu['threads']} on {cpu['cores']} usable cores")
    console().print(table)


def _print_devices(found: list[dict[str, Any]], absent: dict[str, str]) -> None:
    names = ", ".join(f"{row['name']} ({row['target']})" for row in found)
    console().print(f"devices: {names}")
    print_missing(absent)
    console().print()


def _print_settings(settings: list[dict[str, Any]]) -> None:
    table = make_table("setting", "value", "from", "meaning")
    for row in settings:
        value = "" if row["value"] is None else str(row["value"])
        where = "[red]invalid[/red]" if row["error"] else row["source"]
        table.add_row(row["variable"], value, where, row["error"] or row["doc"])
    console().print(table)


def _print_missing(packages: list[dict[str, Any]]) -> None:
    missing = [row for row in packages if not row["installed"]]
    if not missing:
        console().print("optional packages: all here\n")
        return
    table = make_table("missing", "for", "install")
    for row in missing:
        table.add_row(row["name"], row["purpose"], row["install"].replace("[", r"\["))
    console().print(table)


def _print_cache(found: dict[str, Any]) -> None:
    size, limit = bytes_text(found["bytes"]), bytes_text(found["limit_bytes"])
    text = f"compiled code on disk: {size} of {limit} in {found['folder']}"
    if found["off"]:
        text = f"compiled code is not kept on disk: {found['off']}"
    console().print(text, markup=False, highlight=False, soft_wrap=True)


def _print_test(test: dict[str, Any]) -> None:
    if test["ok"]:
        compiled, launched = time_text(test["compile_s"]), time_text(test["launch_s"])
        text = f"compiled and ran a kernel in {compiled}, ran it again in {launched}"
        console().print(f"[green]self-test passed[/green]: {text}")
    else:
        console().print("[red]self-test failed[/red]:", end=" ")
        console().print(test["error"], markup=False)


def _print_miscompilations(found: list[dict[str, Any]]) -> None:
    if not found:
        text = "known miscompilations of CUDA's compiler: not tested, there is no GPU of NVIDIA"
        console().print(text, style="dim")
    for row in found:
        wrong = [name for name, count in row["wrong"].items() if count]
        if row["error"]:
            verdict = f"not tested: {row['error']}"
        elif wrong:
            verdict = f"WRONG RESULTS in {', '.join(wrong)}; install another nvidia-cuda-nvrtc"
        else:
            verdict = f"none of {len(row['wrong'])} has an effect ({row['versions']})"
        text = f"known miscompilations on {row['device']}: {verdict}"
        console().print(text, style="red" if wrong else None, markup=False, highlight=False)
