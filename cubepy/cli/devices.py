"""`cubepy devices`: what kernels can run on."""

from __future__ import annotations

from typing import Any

from cubepy.cli.output import bytes_text, console, make_table, print_json
from cubepy.runtimes.base import Device
from cubepy.runtimes.registry import devices, missing


def show_devices(as_json: bool) -> None:
    """List all devices, and why there are none of the other kinds."""
    found = [describe(device) for device in devices()]
    absent = missing()
    if as_json:
        print_json({"devices": found, "missing": absent})
        return
    table = make_table("name", "device", "target", ">cores", ">memory", ">line", ">plane")
    for row in found:
        sizes = (bytes_text(row["memory_bytes"]), f"{row['line_bytes']} B", str(row["plane_dim"]))
        table.add_row(row["name"], row["device"], row["target"], str(row["cores"]), *sizes)
    console().print(table)
    print_missing(absent)


def print_missing(absent: dict[str, str]) -> None:
    """One line for each kind of device that is not here: what is missing, and the command."""
    for reason in absent.values():
        console().print(f"no {reason}", style="dim", markup=False, highlight=False)


def describe(device: Device) -> dict[str, Any]:
    """A device as plain data; `line_bytes` is the widest useful line."""
    target, properties = device.target, device.properties
    return {
        "name": device.name,
        "device": properties.name,
        "target": str(target),
        "cores": properties.cores,
        "memory_bytes": properties.memory_bytes,
        "line_bytes": target.line_bytes,
        "plane_dim": target.plane_dim,
    }
