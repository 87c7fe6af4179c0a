"""Whole messages of wrong kernels and launches, as users read them.

Each case of cases/ raises one error. `expected/` holds the texts; `--bless` rewrites them: read the
diff as someone would who has never seen the compiler. Lines count from the `def` of the case. The
line with `# here` is where the error must point, whatever the expected text says.
"""

import importlib
import inspect
import re
import statistics
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import cubepy as cp
from tests.errors.case import CASES

HERE = Path(__file__).parent
AREAS = ("python", "names", "types", "memory", "launches")
for area in AREAS:
    importlib.import_module(f"tests.errors.cases.{area}")
PRODUCT = (HERE.parents[1] / "cubepy").resolve()
BEYOND_THE_CALL = ("E5", "E6", "E7")
"""Codes of errors that keep our frames: of settings and devices, of prebuilt kernels, which are
Python that users may step through, and of running kernels, which the interpreter shows."""
HEAD = "=== "


@dataclass(frozen=True)
class Raised:
    """The error of a case, and where the case stands."""

    error: cp.Error
    file: Path
    first: int
    lines: list[str]

    @property
    def marked(self) -> int:
        """The line that the case marks."""
        (found,) = [k for k, line in enumerate(self.lines) if line.endswith("# here")]
        return self.first + found

    @property
    def text(self) -> str:
        """The message with lines that count in the case, and without the marker."""

        def source(match: re.Match[str]) -> str:
            number = str(int(match[1]) - self.first + 1)
            rest = match[2].replace("\n" + " " * len(match[1]), "\n" + " " * len(number))
            return number + rest

        def place(match: re.Match[str]) -> str:
            return f"{self.file.name}:{int(match[1]) - self.first + 1}"

        text = re.sub(re.escape(str(self.file)) + r":(\d+)", place, str(self.error))
        text = re.sub(r"^(\d+)( \| .*(?:\n +\| .*)?)", source, text, flags=re.MULTILINE)
        text = re.sub(r"\(line (\d+)\)", lambda m: f"(line {int(m[1]) - self.first + 1})", text)
        text = re.sub(r"devices here: [^;]*;", "devices here: (those of this machine);", text)
        return text.replace("  # here", "")


@cache
def raised(name: str) -> Raised:
    case = CASES[name]
    lines, first = inspect.getsourcelines(case)
    with pytest.raises(cp.Error) as found:
        case()
    file = Path(inspect.getfile(case))
    return Raised(found.value, file, first, [line.rstrip() for line in lines])


def area_of(name: str) -> str:
    return CASES[name].__module__.rpartition(".")[2]


@cache
def expected(area: str) -> dict[str, str]:
    path = HERE / "expected" / f"{area}.txt"
    blocks = path.read_text(encoding="utf-8").split(HEAD)[1:] if path.exists() else []
    return dict(block.rstrip("\n").split("\n", 1) for block in blocks)


@pytest.mark.parametrize("name", CASES)
def test_message(name: str, bless: bool):
    text = raised(name).text
    if not bless:
        assert text == expected(area_of(name)).get(name)


@pytest.mark.parametrize("area", AREAS)
def test_nothing_else_is_expected(area: str, bless: bool):
    names = [name for name in CASES if area_of(name) == area]
    if bless:
        texts = [f"{HEAD}{name}\n{raised(name).text}\n" for name in names]
        (HERE / "expected" / f"{area}.txt").write_text("\n".join(texts), encoding="utf-8")
        expected.cache_clear()
    assert list(expected(area)) == names


@pytest.mark.parametrize("name", CASES)
def test_it_points_to_the_line(name: str):
    case = raised(name)
    span = case.error.span
    if span is not None:
        assert (Path(span.file), span.line) == (case.file, case.marked)
    else:
        assert user_entries(case)[-1].lineno == case.marked


@pytest.mark.parametrize("name", CASES)
def test_no_frame_of_the_compiler_shows(name: str):
    case = raised(name)
    shown = "".join(traceback.format_exception(case.error))
    assert "During handling" not in shown and "direct cause" not in shown
    ours = [e for e in entries(case) if Path(e.filename).resolve().is_relative_to(PRODUCT)]
    if not str(case.error.code).startswith(BEYOND_THE_CALL):
        assert len(ours) <= 2, shown  # `kernel.inspect` is one call, and `launcher.inspect` another


def entries(case: Raised) -> traceback.StackSummary:
    return traceback.extract_tb(case.error.__traceback__)


def user_entries(case: Raised) -> list[traceback.FrameSummary]:
    return [e for e in entries(case) if Path(e.filename) == case.file]


def lengths() -> Iterator[int]:
    return (len(raised(name).text.splitlines()) for name in CASES)


def test_messages_are_short():
    assert statistics.median(lengths()) <= 7
    assert max(lengths()) <= 12


def test_there_are_many_cases():
    assert len(CASES) >= 120
