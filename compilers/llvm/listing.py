"""Readable listings: debug records of LLVM IR and assembly become comments with lines of Python."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable

from cubepy.artifact import Listing, Place

_LOCATION = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)(?:, column: \d+)?, scope: !(\d+)", re.M
)
_SCOPE = re.compile(
    r"^!(\d+) = (?:distinct )?!DI(?:Subprogram|LexicalBlockFile)\(.*?file: !(\d+)", re.M
)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', re.M)
_FILE_DIRECTIVE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"', re.M)
_NOISE = re.compile(r"\s*\.(file|cfi_|ident|addrsig)|^\.L(tmp|func_|func)")

Numbered = list[tuple[str, Place | None]]


def annotate_llvm(text: str) -> Listing:
    """Optimised IR with `; file:line  source` where the line of Python changes; no metadata."""
    places = _places_of_metadata(text)
    out: Numbered = []
    for line in text.splitlines():
        if not line.startswith(("!", "; ModuleID", "source_filename")):
            found = re.search(r", !dbg !(\d+)", line)
            out.append((re.sub(r",? !dbg !\d+", "", line), places.get(found[1]) if found else None))
    return _finish(out, "  ;", lambda line: False)


def _places_of_metadata(text: str) -> dict[str, Place]:
    """Which place each number of a debug location means; line 0 is compiler-made."""
    files = {key: _unescape(name) for key, name in _FILE.findall(text)}
    scopes = {key: files.get(file, "?") for key, file in _SCOPE.findall(text)}
    found = _LOCATION.findall(text)
    return {k: (scopes.get(scope, "?"), int(line)) for k, line, scope in found if line != "0"}


def annotate_assembly(text: str) -> Listing:
    """Assembly with a comment for each line of Python, without sections and debug directives."""
    found = _FILE_DIRECTIVE.findall(text)
    files = {n: _unescape(f"{folder}/{name}" if folder else name) for n, folder, name in found}
    out: Numbered = []
    place: Place | None = None
    for line in text.splitlines():
        if re.match(r"\s*\.section\s+\.debug", line):
            break
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if found:
            place = (files.get(found[1], "?"), int(found[2])) if found[2] != "0" else None
        elif ".debug_" not in line and ".Ldebug" not in line and not _NOISE.match(line):
            is_instruction = line.startswith("\t") and not line.startswith("\t.")
            out.append((line, place if is_instruction else None))
    return _finish(out, "\t#", lambda line: line.endswith(":"))


def _finish(lines: Numbered, mark: str, forgets: Callable[[str], bool]) -> Listing:
    """Put a comment where the line of Python changes; single blank lines only.

    After lines that the predicate names the comment is repeated.
    """
    out: Numbered = []
    last: Place | None = None
    for line, place in lines:
        if forgets(line):
            last = None
        if place is not None and place != last:
            out.append((_comment(*place, mark=mark), place))
            last = place
        if line.strip() or (out and out[-1][0]):
            out.append((line.rstrip(), place))
    return Listing.of(out)


def _comment(file: str, line: int, mark: str) -> str:
    source = linecache.getline(file, line).strip()
    return f"{mark} {file.rsplit('/', 1)[-1]}:{line}  {source}".rstrip()


def _unescape(text: str) -> str:
    raw = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), text)
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")
