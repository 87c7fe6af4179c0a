"""The guide is true: its Python runs, gives the outputs and errors shown, and its tables are whole.

Blocks of a page run in order in one namespace. A comment before a block changes what is done with
it: `<!-- not run: reason -->` skips a Python block; `<!-- needs torch -->` ends the test there if
an optional package is absent, so that such blocks stand last; `<!-- output -->` marks what the
block before prints; `<!-- error -->` marks the message of the exception that the block before
raises. `--bless` rewrites the marked texts. Line numbers in errors count from the top of their
block.
"""

import re
import runpy
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from cubepy import config
from cubepy.errors import CATALOGUE, Error
from cubepy.ir.ops import TABLE
from cubepy.jit.kernel import CubeKernel
from tests.optional import leave_out

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "docs" / "index.md", *(ROOT / "docs" / "guide").glob("*.md")])
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n\s*)?^(?P<indent> *)```(?P<language>\w+)[^\n]*\n"
    r"(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Snippet:
    """A fenced Python block, with the texts that are to come of it."""

    code: str
    line: int
    package: str = ""
    output: re.Match[str] | None = None
    error: re.Match[str] | None = None


def snippets(text: str) -> list[Snippet]:
    """The Python blocks of a page that run."""
    found: list[Snippet] = []
    for match in BLOCK.finditer(text):
        mark = match["mark"] or ""
        if match["language"] == "python" and not mark.startswith("not run: "):
            line = text.count("\n", 0, match.start("body")) + 1
            package = mark.removeprefix("needs ") if mark.startswith("needs ") else ""
            found.append(Snippet(textwrap.dedent(match["body"]), line, package))
        elif mark in ("output", "error"):
            setattr(found[-1], mark, match)
    return found


class Page:
    """A page whose snippets run as one file; `file` holds their code at the lines of the page."""

    def __init__(self, text: str, file: Path) -> None:
        self.file = file
        self.snippets = snippets(text)
        self.names: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
        lines = [""] * (text.count("\n") + 1)
        for snippet in self.snippets:
            code = snippet.code.splitlines()
            lines[snippet.line - 1 : snippet.line - 1 + len(code)] = code
        file.write_text("\n".join(lines), encoding="utf-8")

    def run(self, snippet: Snippet) -> Error | Exception | None:
        """The exception that the snippet raises, if the page says that it raises one."""
        padded = "\n" * (snippet.line - 1) + snippet.code
        try:
            exec(compile(padded, str(self.file), "exec"), self.names)
        except Exception as error:
            if snippet.error is None:
                raise
            return error
        return None

    def shown(self, text: str) -> str:
        """A message as readers see it: lines count in their block, the file is `kernel.py`."""

        def number(match: re.Match[str]) -> str:
            return f"kernel.py:{self._in_block(int(match[1]))}"

        def source(match: re.Match[str]) -> str:
            shown = str(self._in_block(int(match[1])))
            rest = match[2].replace("\n" + " " * len(match[1]), "\n" + " " * len(shown))
            return shown + rest

        text = re.sub(re.escape(str(self.file)) + r":(\d+)", number, text)
        text = re.sub(re.escape(self.file.name) + r":(\d+)", number, text)
        text = re.sub(r"^(\d+)( \| .*(?:\n +\| .*)?)", source, text, flags=re.MULTILINE)
        return text.replace(str(self.file), "kernel.py")

    def _in_block(self, line: int) -> int:
        starts = [s.line for s in self.snippets if s.line <= line]
        return line - starts[-1] + 1


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_page(path: Path, tmp_path: Path, capfd: Any, monkeypatch: Any, bless: bool):
    text = path.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"page_{path.stem.replace('-', '_')}.py"  # no module of Python has its name
    page, changes, absent = Page(text, file), [], ""
    monkeypatch.setitem(sys.modules, file.stem, type(sys)(file.stem))
    page.names = vars(sys.modules[file.stem]) | page.names
    for snippet in page.snippets:
        if snippet.package and find_spec(snippet.package) is None:
            absent = snippet.package
            break
        capfd.readouterr()
        error = page.run(snippet)
        sys.stdout.flush()
        output = capfd.readouterr().out
        if snippet.error is not None:
            assert error is not None, f"{path.name}:{snippet.line} raises nothing"
            changes.append((snippet.error, page.shown(str(error))))
        if snippet.output is not None:
            changes.append((snippet.output, page.shown(output)))
    if bless and changes:
        path.write_text(rewritten(text, changes), encoding="utf-8")
    for match, found in changes:
        assert bless or normal(found) == normal(match["body"]), f"{path.name}: see {match['body']}"
    if absent:
        leave_out(absent)


def normal(text: str) -> list[str]:
    return [line.rstrip() for line in textwrap.dedent(text).strip("\n").splitlines()]


def rewritten(text: str, changes: list[tuple[re.Match[str], str]]) -> str:
    for match, found in reversed(changes):
        body = textwrap.indent("\n".join(normal(found)) + "\n", match["indent"])
        text = text[: match.start("body")] + body + text[match.end("body") :]
    return text


def test_every_page_is_in_the_navigation():
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in PAGES]
    assert set(pages) <= set(listed)


def generated(name: str) -> str:
    return runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["page"]()


def test_the_reference_of_prebuilt_functions_is_current(bless: bool):
    path, page = ROOT / "docs" / "guide" / "kernels.md", generated("kernel_reference")
    if bless and path.read_text(encoding="utf-8") != page:
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page, "`--bless` writes it again"


def test_options_and_settings_are_listed():
    page = (ROOT / "docs" / "guide" / "settings.md").read_text(encoding="utf-8")
    parameters = signature(CubeKernel.configure).parameters.values()
    options = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    settings = {f"{row.name}` | `{row.variable}" for row in config.TABLE}
    assert {name for name in options | settings if f"\n| `{name}` |" not in page} == set()


def test_the_error_index_names_every_code():
    page = generated("error_index")
    assert [code for code in CATALOGUE if f"\n### {code}\n" not in page] == []
    assert [code for code, row in CATALOGUE.items() if row.explanation not in page] == []


def test_the_operation_reference_names_every_operation():
    page = generated("op_reference")
    assert [name for name in TABLE if f"\n| `{name}` |" not in page] == []
