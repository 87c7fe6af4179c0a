"""Options and fixtures of the whole test suite: `--bless`, `bless`, `require_guest`."""

from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from tests.guests import absent_guest
from tests.guests import require_guest as import_guest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless",
        action="store_true",
        help="rewrite expectation files with what the code gives now; read the diff",
    )


@pytest.fixture(scope="session")
def bless(pytestconfig: pytest.Config) -> bool:
    """True when expectation files are to be rewritten instead of compared."""
    return bool(pytestconfig.getoption("--bless"))


@pytest.fixture
def require_guest() -> Callable[[str], ModuleType]:
    """`torch = require_guest("torch")`: see tests/guests.py."""
    return import_guest


@pytest.fixture(scope="session")
def require_text_device() -> Iterator[Callable[[str], None]]:
    """`require_text_device("pocl")`: the test is skipped where the device's compiler is absent."""
    from tests.compilers.c import text_devices

    with text_devices.registered():
        yield text_devices.require


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("guest"):
        for name in mark.args:
            import_guest(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    absent: Counter[str] = Counter()
    for report in terminalreporter.getreports("skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if name := absent_guest(reason):
            absent[name] += 1
    for name, count in sorted(absent.items()):
        terminalreporter.line(f"guest absent: {name} ({count} skipped)")
