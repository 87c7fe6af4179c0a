"""Picks as a text file that people review, commit and ship: JSON, sorted, one field a line."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from typing import Any

from cubepy.autotune.records import ANYWHERE, IMPORTED, Key, Measurement, Pick, Records
from cubepy.autotune.space import canonical_text
from cubepy.autotune.trials import OK

FORMAT = "cubepy tuning 1"
_TEXTS = ("kernel", "source", "hardware")


class BadFile(ValueError):
    """A text is no file of picks; the message says where."""


def export_text(records: Records, pattern: str = "*", anywhere: bool = False) -> str:
    """The picks in force as text: imported ones, else measured ones, of kernels that match.

    `anywhere`: they are to hold on all hardware, which takes one kind in the records.
    """
    chosen: dict[Key, Pick] = {}
    for pick in records.picks():  # imported ones come before measured ones
        if fnmatch.fnmatchcase(pick.key.kernel, pattern):
            chosen.setdefault(pick.key, pick)
    kinds = {key.hardware for key in chosen}
    if anywhere and len(kinds - {ANYWHERE}) > 1:
        raise BadFile(f"the picks are of {len(kinds)} kinds of hardware")
    rows = [_row(records, pick, anywhere) for pick in chosen.values()]
    facts = records.hardware()
    document = {
        "format": FORMAT,
        "hardware": {k: _parsed(facts.get(k, "{}")) for k in sorted(kinds - {ANYWHERE})},
        "picks": sorted(rows, key=canonical_text),
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def _row(records: Records, pick: Pick, anywhere: bool) -> dict[str, Any]:
    measured = records.measurements(pick.key)
    found = measured.get(pick.config)
    row: dict[str, Any] = {
        "kernel": pick.key.kernel,
        "problem": _parsed(pick.key.problem),
        "source": pick.key.source,
        "hardware": ANYWHERE if anywhere else pick.key.hardware,
        "config": _parsed(pick.config),
        "about": _about(pick, found, measured),
    }
    return row


def _about(
    pick: Pick, found: Measurement | None, measured: dict[str, Measurement]
) -> dict[str, Any]:
    """What a reader wants to know of a pick: its time, and that of the slowest that was right."""
    about = dict(_parsed(pick.about)) if pick.about != "{}" else {}
    if found is not None and found.seconds is not None:
        about["seconds"] = float(f"{found.seconds:.3g}")
        times = [m.seconds for m in measured.values() if m.status == OK and m.seconds]
        about["measured"] = len(times)
    if "confidence" in about:
        about["confidence"] = round(about["confidence"], 3)
    return about


def _parsed(text: str) -> Any:
    """JSON where a text is JSON, else the text itself."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(found, str) else found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_text(value)


def read_picks(text: str) -> list[Pick]:
    """The picks that a file holds; `BadFile` for what is none, with its place."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadFile(f"it is no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadFile(f'it does not say "format": "{FORMAT}"')
    rows = document.get("picks")
    if not isinstance(rows, list):
        raise BadFile("it has no list of picks")
    return [_pick(number, row) for number, row in enumerate(rows)]


def _pick(number: int, row: Any) -> Pick:
    if not isinstance(row, dict):
        raise BadFile(f"pick {number} is no object")
    for name in _TEXTS:
        if not isinstance(row.get(name), str) or not row[name]:
            raise BadFile(f"pick {number} has no {name}")
    problem, config = row.get("problem"), row.get("config")
    if not isinstance(problem, list | dict | str) or not isinstance(config, dict | str):
        raise BadFile(f"pick {number} has no problem or no config")
    key = Key(row["hardware"], row["kernel"], row["source"], _text(problem))
    about = row.get("about")
    return Pick(key, _text(config), IMPORTED, canonical_text(about or {}))


def import_text(records: Records, text: str) -> Sequence[Pick]:
    """Keep the picks of a file; they go before all that was or will be measured."""
    found = read_picks(text)
    facts = json.loads(text).get("hardware")
    held = facts if isinstance(facts, dict) else {}
    texts = {k: json.dumps(v, sort_keys=True, separators=(",", ":")) for k, v in held.items() if v}
    records.put_picks(found, texts)
    return found
