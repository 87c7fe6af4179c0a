"""From nothing to a result: a fresh process imports, compiles and runs its first kernel."""

from collections.abc import Iterator
from functools import partial

from bench import peers
from bench.children.process import run_child
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "cold start"
FLOOR, LIMIT = 2.0, 0.5
ROUNDS = 9


def rows() -> Iterator[Row]:
    """One row; no cache on disk is used."""
    yield Row(GROUP, "first kernel", _make, rounds=ROUNDS)


def _make(small: bool) -> Case:
    run = partial(run_child, threads=peers.all_cores())
    contenders = [
        Contender(OURS, partial(run, "first_cubepy"), "import, compile, run"),
        Contender(OURS, partial(run, "import_only", "cubepy"), "import"),
        Contender("numpy", partial(run, "import_only", "numpy"), "import"),
    ]
    if peers.find("numba"):
        contenders += [
            Contender("numba", partial(run, "first_numba"), "import, compile, run"),
            Contender("numba", partial(run, "import_only", "numba"), "import"),
        ]
    ours, theirs = "cubepy import, compile, run", "numba import, compile, run"
    claims = [Claim("numba", ours, (theirs,), FLOOR), Claim("seconds", ours, limit=LIMIT)]
    return Case(contenders, claims)
