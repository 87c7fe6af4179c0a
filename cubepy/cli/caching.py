"""`cubepy cache`: what is kept of compiled code, whether it is whole, and why code is not found."""

from __future__ import annotations

import time
from typing import Any

import typer

from cubepy import config
from cubepy.cache.closure import Unknown, closure_of
from cubepy.cache.entry import Entry
from cubepy.cache.store import find_store, header_of, named_store
from cubepy.cache.versions import versions
from cubepy.cli.failures import FAILED, Failure, misuse
from cubepy.cli.loading import load
from cubepy.cli.output import bytes_text, console, make_table, print_json
from cubepy.lang.function import CubeFunction


def show_list(as_json: bool) -> None:
    """All entries, those used last first."""
    found = state()
    if as_json:
        print_json(found)
        return
    table = make_table("kernel", "kind", "target", ">size", ">used", "key")
    for row in found["entries"]:
        age = f"{row['idle_s'] / 3600:.1f} h ago"
        kernel, target = row["kernel"] or "?", row["target"]
        table.add_row(kernel, row["kind"], target, bytes_text(row["bytes"]), age, row["key"][:12])
    if found["entries"]:
        console().print(table)
    print_summary(found)


def state() -> dict[str, Any]:
    """The store as plain data; `off` says why nothing is kept, empty where it is."""
    store = named_store()
    rows = [_row(file.name, file.nbytes, file.used, entry) for file, entry in store.entries()]
    off = store.why_not() if config.get("cache") else "CUBEPY_CACHE is 0"
    return {
        "folder": store.path,
        "off": off,
        "bytes": sum(row["bytes"] for row in rows),
        "limit_bytes": config.get("cache_bytes"),
        "entries": rows,
    }


def _row(key: str, nbytes: int, used: float, entry: Entry | str) -> dict[str, Any]:
    header = header_of(entry)
    return {
        "key": key,
        "kernel": str(header.get("kernel", "")),
        "kind": str(header.get("kind", "")) or "damaged",
        "target": str(_parts(header).get("target", "")),
        "bytes": nbytes,
        "idle_s": max(0.0, time.time() - used),
        "error": entry if isinstance(entry, str) else "",
    }


def _parts(header: dict[str, Any]) -> dict[str, Any]:
    found = header.get("parts")
    return found if isinstance(found, dict) else {}


def print_summary(found: dict[str, Any]) -> None:
    """How much is kept, and where."""
    size, limit = bytes_text(found["bytes"]), bytes_text(found["limit_bytes"])
    text = f"{len(found['entries'])} entries, {size} of {limit}, in {found['folder']}"
    console().print(text, markup=False, highlight=False, soft_wrap=True)
    if found["off"]:
        console().print(f"nothing is kept: {found['off']}", markup=False, soft_wrap=True)


def show_verify(as_json: bool) -> None:
    """Read all entries; remove those that are damaged or another user's. Exit code 1 for any."""
    store, found = named_store(), state()
    damaged = [row for row in found["entries"] if row["error"]]
    for row in damaged:
        store.remove(row["key"])
    if as_json:
        print_json({"ok": not damaged, "checked": len(found["entries"]), "removed": damaged})
    else:
        for row in damaged:
            console().print(f"removed {row['key'][:12]}: {row['error']}", markup=False)
        console().print(f"{len(found['entries']) - len(damaged)} of {len(found['entries'])} whole")
    if damaged:
        raise typer.Exit(FAILED)


def show_clear(as_json: bool) -> None:
    """Remove all entries."""
    count = named_store().clear()
    if as_json:
        print_json({"removed": count})
    else:
        console().print(f"removed {count} entries")


def show_why(reference: str, as_json: bool) -> None:
    """What is kept of a kernel, and for each entry what has changed since it was made."""
    _, name, kernel = load(reference)
    if not isinstance(kernel, CubeFunction):
        raise misuse(f"`{name}` is no kernel")
    found = explain(kernel)
    if as_json:
        print_json(found)
        return
    if found["unknown"]:
        console().print(f"never kept: {found['unknown']}", markup=False, soft_wrap=True)
    for row in found["entries"]:
        changed = ", ".join(row["changed"])
        verdict = f"not found any more, changed: {changed}" if changed else "found"
        text = f"{row['key'][:12]} {row['kind']:5} {row['target']} {row['signature']}: {verdict}"
        console().print(text, markup=False, highlight=False, soft_wrap=True)
    if not found["entries"] and not found["unknown"]:
        console().print("nothing is kept of it: it was not compiled, or its entries were removed")


def explain(kernel: CubeFunction) -> dict[str, Any]:
    """The entries of a kernel, each with the names of what differs now."""
    store = find_store()
    if store is None:
        raise Failure("the cache is switched off", "unset CUBEPY_CACHE")
    function, unknown = kernel.function, ""
    present: dict[bool, dict[str, str]] = {False: {}, True: {}}
    try:
        present = {places: closure_of(function, (), places).parts for places in (False, True)}
    except Unknown as error:
        unknown = str(error)
    rows: list[dict[str, Any]] = []
    for file, entry in store.entries():
        header = header_of(entry)
        if header.get("kernel") != function.__qualname__ or header.get("kind") == "object":
            continue  # an object is found by its text alone, whatever that was made from
        parts = _parts(header)
        changed = _changed(parts, present[bool(parts.get("checked"))])
        row = _row(file.name, file.nbytes, file.used, entry)
        rows.append(row | {"signature": str(parts.get("signature", "")), "changed": changed})
    return {"kernel": function.__qualname__, "unknown": unknown, "entries": rows}


def _changed(parts: dict[str, Any], present: dict[str, str]) -> list[str]:
    """The names of versions, functions and constants that were other ones."""
    before, now = dict(parts.get("versions", {})), versions(str(parts.get("target")).split(":")[0])
    changed = [
        f"{name} ({before.get(name)}, now {now.get(name)})"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    source = dict(parts.get("source", {}))
    own = {name for name, digest in source.items() if present.get(name, digest) != digest}
    gone = {name for name in present if name not in source}
    return changed + sorted(own) + [f"{name} (new)" for name in sorted(gone)]
