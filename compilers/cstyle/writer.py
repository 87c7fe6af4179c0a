"""Lines of C with indentation; a comment names the Python line where that changes."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable

from cubepy.artifact import Listing, Place
from cubepy.span import Span, in_user_code

INDENT = "    "
COLUMNS = 100
MAX_CHOICE = 72
_JUMPS = ("break;", "continue;", "return;")
_BREAK = re.compile(r"(?<=[,;]) |(?<= =) | (?=(?:[-+*/?:|]|&&|\|\|) )")
Lines = list[tuple[str, Place | None]]


class Writer:
    """Collects the lines of a kernel."""

    def __init__(self) -> None:
        self._lines: Lines = []
        self._depth = 1
        self._open: list[int] = []
        self._stays: dict[str, str] = {}
        self._first = 0
        self.span: Span | None = None

    def line(self, text: str) -> None:
        """A statement that stems from the present span."""
        span = None if self.span is None else in_user_code(self.span)
        place = None if span is None else (span.file, span.line)
        self._lines.append((INDENT * self._depth + text, place))

    def plain(self, text: str) -> None:
        """A line without a position, such as a closing brace."""
        self._lines.append((INDENT * self._depth + text, None))

    def open(self, text: str) -> None:
        """A line that begins a block."""
        self._open.append(len(self._lines))
        self.line(text)
        self._depth += 1

    def close(self, text: str = "}") -> None:
        """The line that ends a block."""
        self._depth -= 1
        self.plain(text)
        self._first = self._open.pop()

    def lift_condition(self) -> None:
        """Make `while (true) { if (end) break; ...` of the block that ended last a `while`."""
        text, place = self._lines[self._first + 1]
        stays = self._stays.get(text.strip())
        if stays is not None:
            head = self._lines[self._first][0].replace("(true)", f"({stays})")
            self._lines[self._first : self._first + 2] = [(head, place)]

    def captured(self, write: Callable[[], None]) -> Lines:
        """The lines of a block one level deeper, which are not written yet."""
        outer, self._lines = self._lines, []
        self._depth += 1
        write()
        self._depth -= 1
        inner, self._lines = self._lines, outer
        return inner

    def extend(self, lines: Lines) -> None:
        """Write captured lines."""
        self._lines += lines

    def branch(self, condition: str, opposite: str, then: Lines, otherwise: Lines) -> None:
        """An `if` over captured lines; an empty branch is left out."""
        if not then and not otherwise:
            return
        self.line(f"if ({condition if then else opposite}) {{")
        only = then or otherwise
        if not (then and otherwise) and len(only) == 1 and only[0][0].strip() in _JUMPS:
            text = f"{self._lines[-1][0][:-1]}{only[0][0].strip()}"
            self._lines[-1] = (text, self._lines[-1][1])
            if text.endswith("break;"):
                self._stays[text.strip()] = opposite if then else condition
            return
        self.extend(then)
        if then and is_one_branch(otherwise):
            (first, place), *rest = otherwise
            self.plain(f"}} else {first.strip()}")
            self._lines[-1] = (self._lines[-1][0], place)
            self.extend([(text.removeprefix(INDENT), at) for text, at in rest])
            return
        if then and otherwise:
            self.plain("} else {")
        self.extend(otherwise)
        self.plain("}")

    @property
    def text(self) -> str:
        """What is written so far."""
        return "\n".join(text for text, _ in self._lines)

    def listing(self, head: list[str], tail: list[str]) -> Listing:
        """All lines between a head and a tail, with comments."""
        out: Lines = [(text, None) for text in head]
        last: Place | None = None
        for text, place in self._lines:
            if place is not None and place != last:
                indent = text[: len(text) - len(text.lstrip())]
                out.append((_cut(indent[: COLUMNS // 2] + comment(place)), place))
                last = place
            out.append((text, place))
        out += [(text, None) for text in tail]
        return Listing.of([part for text, place in out for part in wrapped(text, place)])


def is_one_branch(lines: Lines) -> bool:
    """Whether captured lines are one `if` with its branches: it needs no braces behind `else`."""
    if len(lines) < 2 or not lines[0][0].lstrip().startswith("if ("):
        return False
    first, last = lines[0][0], lines[-1][0]
    indent = first[: len(first) - len(first.lstrip())]
    outer = [text for text, _ in lines[1:-1] if not text.startswith(indent + INDENT)]
    joined = all(text.startswith(f"{indent}}} else") for text in outer)
    return first.endswith("{") and last == f"{indent}}}" and joined


def choice(targets: tuple[str, ...], then: Lines, otherwise: Lines) -> str | None:
    """`a : b`, where each branch does nothing but assign the one target."""
    if len(targets) != 1 or len(then) != 1 or len(otherwise) != 1:
        return None
    start = f"{targets[0]} = "
    texts = [lines[0][0].strip() for lines in (then, otherwise)]
    if not all(text.startswith(start) for text in texts) or sum(map(len, texts)) > MAX_CHOICE:
        return None
    values = [text.removeprefix(start).removesuffix(";") for text in texts]
    return " : ".join(f"({value})" if "?" in value else value for value in values)


def wrapped(text: str, place: Place | None) -> Lines:
    """A line in parts of at most `COLUMNS`, broken behind commas or before operators."""
    if len(text) <= COLUMNS or "//" in text or '"' in text or text.startswith("#"):
        return [(text, place)]
    indent = text[: len(text) - len(text.lstrip())] + 2 * INDENT
    found: Lines = []
    while len(text) > COLUMNS:
        end = _break_of(text, len(indent))
        if end is None:
            break
        found.append((text[:end], place))
        text = indent + text[end + 1 :]
    return [*found, (text, place)]


def _break_of(text: str, indent: int) -> int | None:
    """Where to break a line: in its second half, as few brackets deep as can be, as late."""
    ends = [m.start() for m in _BREAK.finditer(text) if indent < m.start() <= COLUMNS]
    late = [end for end in ends if end > COLUMNS // 2] or ends
    if not late:
        return None
    depths = [text[:end].count("(") - text[:end].count(")") for end in late]
    ranked = [(-d, text[end - 1] == ",", end) for d, end in zip(depths, late, strict=True)]
    return max(ranked)[2]


def comment(place: Place) -> str:
    """`// file.py:12: source`; nothing in it can end the comment or continue it."""
    file, line = place
    source = linecache.getline(file, line).strip()
    return f"// {printable(file.rsplit('/', 1)[-1])}:{line}: {printable(source)}".rstrip(": ")


def _cut(text: str) -> str:
    """What fits into a line."""
    return text if len(text) <= COLUMNS else f"{text[: COLUMNS - 3].rstrip()}..."


def printable(text: str) -> str:
    """Text of the user as printable ASCII, without what C reads specially in comments: the end of
    one, and what joins the next line to it, a backslash, which is `??/` too."""
    plain = text.encode("ascii", "replace").decode()
    plain = re.sub(r"[^ -~]|\\", " ", plain)
    return re.sub(r"\?(?=\?)", "? ", plain).replace("*/", "* /").rstrip()
