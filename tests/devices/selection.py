"""A plugin of pytest that selects the tests of one kind of device: `-p tests.devices.selection
--kind cuda` takes those whose names have the kind, and those that take its fixture."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kind", help="the kind of device whose tests run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = str(config.getoption("--kind"))
    kept = [item for item in items if is_of(kind, item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def is_of(kind: str, item: pytest.Item) -> bool:
    """Whether a test is of that kind, by its name or by what it takes, and no driver is made up."""
    taken = getattr(item, "fixturenames", ())
    return (kind in item.nodeid or kind in taken) and not {"driver", "fake"} & set(taken)
