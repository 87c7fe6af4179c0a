"""Whether a file was edited after Python imported it, so that it holds other code than runs.

That the text of now compiles to other code than the one that runs proves nothing: the same text
gives other code where it is compiled in parts (a name that the module imports is called by other
instructions), and where a tool rewrites it (pytest's `assert`). So a function is refused only if
its very code comes from an older text, and not from that of now. Older texts are

- that of the program that runs, as it was when CubePy was imported;
- those of files whose functions became cube functions, or which these name: functions, modules,
  and what lies in classes, objects and short containers by their side;
- that of Python's bytecode on disk.

Texts that lie in no file, which generators of code put into `linecache`, may share a name: there
code is read from the text that gives it, and refused where another one stands in its place.

Where none holds the code, a file is trusted. So a new text runs where a file has no bytecode, is
no program, and was edited before any cube function named something of it: a function that only
calls of prebuilt kernels are given, or one that a kernel gets as an argument.
"""

from __future__ import annotations

import dis
import io
import linecache
import marshal
import os
import tokenize
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cubepy import started
from cubepy.lang.containers import listed
from cubepy.lang.objects import is_fixed, is_installed
from cubepy.lang.unfiled import codes_in, compiled

_NAMES = 64
"""How many names are known that are no files'."""
_newest: dict[str, None] = {}
"""Those names, the newest last."""
_KEPT = 4
"""How many texts of a file are kept, beside those of functions that live."""
_SHORT = 64
"""Items of a container that are looked through."""
_Stamp = tuple[int, int, int]  # the time of its last edit, its size, its inode
_texts: dict[str, list[tuple[_Stamp, list[str]]]] = {}
"""By file, its lines at the times when functions became cube functions, the newest last."""
_by_code: dict[int, tuple[Any, list[str]]] = {}
"""By the identity of code, the text of its file when its function became a cube function or was
first named by one, with a weak reference that removes the entry when the code dies."""
_older: dict[str, list[str]] = {}
"""By file, its lines when it was found to be no newer than its bytecode."""


def remember(function: Any) -> None:
    """Keep the text of a function's file, and of the files of what it calls, as they are now."""
    if type(function) is not FunctionType or is_fixed(_module(function)):
        return
    _hold(function)
    for called in _called(function):
        if _hold(called):
            remember(called)


def edit_behind(code: CodeType, lines: list[str]) -> str | None:
    """What to do about a file that holds `lines` now, and held others when `code` was imported;
    None where that is not certain."""
    file = code.co_filename
    try:
        bytecode = _bytecode(file, lines)
        stale = bytecode is not None and _has_columns(code) and code in codes_in(bytecode[1])
        if not (stale or _was_read(code, lines)) or _gives(lines, code):
            return None
    except (RecursionError, MemoryError):
        return None
    name = f"`{os.path.basename(file)}`"
    if stale and bytecode is not None and bytecode[0]:
        return f"Python runs bytecode of {name} before its last edit; touch it and import it again"
    if file == started.FILE:
        return f"{name} was edited after it began to run; run it again"
    return f"{name} was edited after Python imported it; import it again"


def _module(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__"))


def _hold(function: FunctionType) -> bool:
    """Keep the text of a function's file as long as its code lives; whether one was not known."""
    code = function.__code__
    is_new, key = _keep(code.co_filename), id(code)
    texts = _texts.get(code.co_filename)
    if not texts or key in _by_code:
        return is_new
    _by_code[key] = weakref.ref(code, lambda _: _by_code.pop(key, None)), texts[-1][1]
    return True


def _called(function: FunctionType) -> Iterator[FunctionType]:
    """Functions of the user that a function names, by themselves or by what holds them. The files
    of modules that it names are kept by the way."""
    names = {name for code in codes_in(function.__code__) for name in code.co_names}
    found = [function.__globals__.get(name) for name in names]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not assigned yet
            found.append(cell.cell_contents)
    for module in [m for m in found if type(m) is ModuleType and not is_fixed(m.__name__)]:
        if isinstance(module.__dict__.get("__file__"), str) and not is_installed(module.__name__):
            _keep(module.__file__ or "")
        found += [vars(module).get(name) for name in names]
    for value in found:
        if value is None or type(value) is ModuleType:
            continue
        for each in _held(value, names):
            if type(each) is FunctionType and not is_fixed(_module(each)):
                yield each


def _held(value: Any, names: set[str]) -> Iterable[Any]:
    """What may be functions: a value, the items of a short container, and members of a user's class
    or object. Types are compared, as `isinstance` would load modules and objects that are lazy."""
    kind = type(value)
    if kind is FunctionType:
        return (value,)
    if kind in (list, tuple, dict):
        items = value.values() if kind is dict else value
        return list(items) if len(value) <= _SHORT else ()
    cls = value if issubclass(kind, type) else kind
    if is_fixed(cls.__module__):
        return ()
    members = (m for n, m in listed(vars(cls).items()) if n in names or n.startswith("__"))
    return [getattr(m, "__func__", m) if type(m) in _METHODS else m for m in members]


_METHODS = (staticmethod, classmethod)


def _keep(file: str) -> bool:
    """Keep the text of a file; whether it was not known. `linecache` then need not read it."""
    try:
        stat = os.stat(file)
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        texts = _texts.setdefault(file, [])
        if texts and texts[-1][0] == stamp:
            return False
        with tokenize.open(file) as opened:
            lines = opened.readlines()
    except (OSError, ValueError, SyntaxError):  # no file, or not of text
        return _keep_unfiled(file)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    linecache.cache[file] = stat.st_size, stat.st_mtime, lines, file
    texts.append((stamp, lines))
    del texts[:-_KEPT]
    return True


def _keep_unfiled(name: str) -> bool:
    """Keep what `linecache` holds under a name that is no file's, for the newest of such names."""
    lines = _unfiled(name)
    texts = _texts.setdefault(name, []) if lines else []
    if not lines or (texts and texts[-1][1] == lines):
        return False
    texts.append(((0, 0, 0), lines))
    del texts[:-_KEPT]
    _newest.pop(name, None)
    _newest[name] = None
    while len(_newest) > _NAMES:
        oldest = next(iter(_newest))
        del _newest[oldest]
        _texts.pop(oldest, None)
    return True


def _unfiled(name: str) -> list[str]:
    """The lines under a name that is no file's: their entries have no time."""
    entry: Any = linecache.cache.get(name)
    return entry[2] if entry is not None and len(entry) > 2 and entry[1] is None else []


def text_of(code: CodeType, lines: list[str]) -> list[str]:
    """The lines that code comes from, where others may stand under its name, which is no file's;
    none where they are not known."""
    if lines != _unfiled(code.co_filename):
        return lines
    kept = [_by_code[id(code)][1]] if id(code) in _by_code else []
    olds = [old for _, old in _texts.get(code.co_filename, ())]
    for text in (*kept, lines, *olds):
        if _gives(text, code):
            return text
    return lines if _resembles(lines, code) else []


def _resembles(lines: list[str], code: CodeType) -> bool:
    """Whether a text may have the code, to which a tool has added something, or from which it took
    something, or which a prompt compiled in parts."""
    found = _compiled("".join(lines), code.co_filename, code.co_flags)
    same = [_words(c) for c in found if _place(c) == _place(code)]
    words = _words(code)
    return not same or any(other <= words or words <= other for other in same)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _words(code: CodeType) -> Counter[Any]:
    """The names, constants and operators in code, with those of the code inside it."""
    words: Counter[Any] = Counter()
    for one in codes_in(code):
        words.update((*one.co_names, *one.co_varnames))
        words.update((type(c), repr(c)) for c in one.co_consts if not isinstance(c, CodeType))
        found = (i for i in dis.get_instructions(one) if i.opname in _OPERATORS)
        words.update((i.opname, i.arg) for i in found)
    return words


_OPERATORS = frozenset(("BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "IS_OP"))


def _was_read(code: CodeType, lines: list[str]) -> bool:
    """Whether the code comes from a text that was kept, of which the function has changed."""
    rows = _rows(lines, code)
    olds = [old for _, old in _texts.get(code.co_filename, ())]
    if id(code) in _by_code:
        olds.append(_by_code[id(code)][1])
    if code.co_filename == started.FILE:
        olds.append(_of_program())
    olds = [old for old in olds if old is not lines]
    return any(_rows(old, code) != rows and _gives(old, code) for old in olds)


@cache
def _of_program() -> list[str]:
    """The lines of the program that runs, when CubePy was imported."""
    opened = io.BytesIO(started.TEXT)
    try:
        encoding, _ = tokenize.detect_encoding(opened.readline)
        text = started.TEXT.decode(encoding)
    except (SyntaxError, ValueError, LookupError):
        return []
    return io.StringIO(text if text.endswith(("\n", "\r")) else f"{text}\n", None).readlines()


def _rows(lines: list[str], code: CodeType) -> list[str]:
    """The lines that the code comes from."""
    inner = codes_in(code)
    ends = [end for each in inner for _, end, _, _ in each.co_positions() if end is not None]
    return lines[code.co_firstlineno - 1 : max(ends, default=code.co_firstlineno)]


def _gives(lines: list[str], code: CodeType) -> bool:
    """Whether a file of these lines has the code."""
    return code in _compiled("".join(lines), code.co_filename, code.co_flags)


@lru_cache(maxsize=8)
def _compiled(text: str, file: str, flags: int) -> list[CodeType]:
    with warnings.catch_warnings(action="ignore"):  # Python has shown them at the import
        return compiled(text, "exec", file, flags)


def _bytecode(file: str, lines: list[str]) -> tuple[bool, CodeType] | None:
    """The module that Python's bytecode of a file holds, where the file is newer than it, and
    whether an import would still take it: the times in it are of whole seconds."""
    if _older.get(file) is lines:
        return None
    try:
        cached = cache_from_source(file)
        stat = os.stat(file)
        if stat.st_mtime_ns <= os.stat(cached).st_mtime_ns:
            _older[file] = lines
            return None
        with open(cached, "rb") as opened:
            head, data = opened.read(16), opened.read()
        of_time = head[:8] == MAGIC_NUMBER + bytes(4)  # the others are of a text's hash
        module = marshal.loads(data) if of_time else None
    except (OSError, ValueError, EOFError, TypeError, NotImplementedError):
        return None
    second, size = (n & 0xFFFFFFFF for n in (int(stat.st_mtime), stat.st_size))
    is_taken = head[8:] == second.to_bytes(4, "little") + size.to_bytes(4, "little")
    return (is_taken, module) if isinstance(module, CodeType) else None


def _has_columns(code: CodeType) -> bool:
    """Whether code has columns, and so does what is compiled now: `-X no_debug_ranges` drops them,
    and bytecode may come from a process with it."""
    both = code, compile("0", "", "eval")
    return all(any(p[2] is not None for p in each.co_positions()) for each in both)
