"""`cli("inspect", ...)` runs a command in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cubepy.cli.main import app

KERNELS = str(Path(__file__).with_name("kernels_file.py"))


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def cli() -> Run:
    def run(*words: object) -> Outcome:
        found = CliRunner().invoke(app, [str(word) for word in words], prog_name="cubepy")
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Outcome(found.exit_code, found.stdout, found.stderr)

    return run


@pytest.fixture(scope="session")
def kernels() -> str:
    """The file of test kernels; add `:NAME`."""
    return KERNELS
