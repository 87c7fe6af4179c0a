"""Options and fixtures of the whole test suite: `--bless`, `--passed`, `require_package`."""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.optional import absent_package
from tests.optional import require_package as import_package

# Before cubepy reads the environment: no test passes or fails for code that another run left.
# `CUBEPY_CACHE=1 CUBEPY_CACHE_DIR=...` runs the suite with kept code on purpose.
os.environ.setdefault("CUBEPY_CACHE", "0")
os.environ.setdefault("CUBEPY_TUNE", "off")  # tests that measure say so
if "CUBEPY_CACHE_DIR" not in os.environ:
    os.environ["CUBEPY_CACHE_DIR"] = tempfile.mkdtemp(prefix="cubepy-tests-")
    atexit.register(shutil.rmtree, os.environ["CUBEPY_CACHE_DIR"], ignore_errors=True)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="rewrite expectation files with what the code gives now; read the diff",
    )
    parser.addoption(
        "--passed",
        type=Path,
        help="leave out the tests that this file lists, and add those that pass to it",
    )


def pytest_collection_finish() -> None:
    from cubepy.passes import pipeline  # not before the environment is set

    pipeline.VERIFIES_EACH = True  # a pass that breaks the IR is found even if a later one mends it
    gc.freeze()  # what was imported lives to the end: collections need not look at it again
    gc.set_threshold(20_000, 20, 50)  # compiling makes many objects, few of them in cycles


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path: Path | None = config.getoption("--passed")
    if path is None or not path.exists():
        return
    passed = set(path.read_text(encoding="utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


@pytest.fixture(scope="session")
def bless(pytestconfig: pytest.Config) -> bool:
    """True when expectation files are to be rewritten instead of compared."""
    return bool(pytestconfig.getoption("--bless"))


@pytest.fixture
def require_package() -> Callable[[str], ModuleType]:
    """`torch = require_package("torch")`: see tests/optional.py."""
    return import_package


@pytest.fixture(scope="session")
def require_text_device() -> Iterator[Callable[[str], None]]:
    """`require_text_device("pocl")`: the test is skipped where the device's compiler is absent."""
    from tests.compilers.c import text_devices

    with text_devices.registered():
        yield text_devices.require


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("optional"):
        for name in mark.args:
            import_package(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    path: Path | None = terminalreporter.config.getoption("--passed")
    if path is not None:
        passed = [report.nodeid for report in terminalreporter.getreports("passed")]
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in passed)
    absent: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if name := absent_package(reason):
            absent[name] += 1
    for name, count in sorted(absent.items()):
        terminalreporter.line(f"package absent: {name} ({count} skipped)")
