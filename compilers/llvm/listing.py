"""Readable listings: debug records of LLVM IR and assembly become comments with lines of Python."""

from __future__ import annotations

import linecache
import re

_LOCATION = re.compile(
    r"^!(\d+) = !DILocation\(line: (\d+)(?:, column: (\d+))?, scope: !(\d+)", re.M
)
_SCOPE = re.compile(r"^!(\d+) = distinct !DISubprogram\(.*?file: !(\d+)", re.M)
_FILE = re.compile(r'^!(\d+) = !DIFile\(filename: "([^"]*)"', re.M)


def annotate_llvm(text: str) -> str:
    """Optimised IR with `; file:line  source` where the line of Python changes; no metadata."""
    files = {key: _unescape(name) for key, name in _FILE.findall(text)}
    scopes = {key: files.get(file, "?") for key, file in _SCOPE.findall(text)}
    places = {k: (scopes.get(s, "?"), int(line)) for k, line, _, s in _LOCATION.findall(text)}
    out: list[str] = []
    last: tuple[str, int] | None = None
    for line in text.splitlines():
        if line.startswith(("!", "; ModuleID", "source_filename")):
            continue
        found = re.search(r", !dbg !(\d+)", line)
        place = places.get(found[1]) if found else None
        if place is not None and place[1] and place != last:
            out.append(_comment(*place, mark="  ;"))
            last = place
        out.append(re.sub(r",? !dbg !\d+", "", line))
    return _squeeze(out)


def annotate_assembly(text: str) -> str:
    """Assembly with a comment for each line of Python, without sections and debug directives."""
    files = {
        n: _unescape(name)
        for n, name in re.findall(r'^\s*\.file\s+(\d+)\s+.*?"([^"]*)"\s*$', text, re.M)
    }
    out: list[str] = []
    last: tuple[str, int] | None = None
    for line in text.splitlines():
        if ".debug_" in line or ".Ldebug" in line:
            if re.match(r"\s*\.section\s+\.debug", line):
                break
            continue
        found = re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line)
        if found:
            place = (files.get(found[1], "?"), int(found[2]))
            if place[1] and place != last:
                out.append(_comment(*place, mark="\t#"))
                last = place
        elif not re.match(r"\s*\.(file|cfi_|ident|addrsig)|^\.L(tmp|func_|func)", line):
            out.append(line)
    return _squeeze(out)


def _comment(file: str, line: int, mark: str) -> str:
    source = linecache.getline(file, line).strip()
    return f"{mark} {file.rsplit('/', 1)[-1]}:{line}  {source}".rstrip()


def _unescape(text: str) -> str:
    raw = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), text)
    return raw.encode("latin-1", "replace").decode("utf-8", "replace")


def _squeeze(lines: list[str]) -> str:
    """Single blank lines only."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
