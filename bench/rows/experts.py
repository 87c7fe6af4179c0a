"""Products of groups of rows, as of a mixture of experts, against a loop of torch's products."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import peers
from bench.arrays import make_random
from bench.suite import OURS, Case, Claim, Contender, Row

GROUP = "grouped_matmul"


@dataclass(frozen=True, slots=True)
class Problem:
    """`rows` rows of k in as many groups, uneven and perhaps empty, by a k x n matrix each."""

    rows: int
    groups: int
    k: int
    n: int
    dtype: str
    floor: float

    def __str__(self) -> str:
        return f"{self.dtype} {self.rows} rows in {self.groups} groups of {self.k}x{self.n}"

    def less(self) -> "Problem":
        """A problem of the same kind that is checked quickly."""
        return Problem(min(self.rows, 40), 3, 70, 50, self.dtype, self.floor)

    def ends(self) -> list[int]:
        """Where the groups end."""
        cuts = np.random.default_rng(self.groups).integers(0, self.rows, self.groups - 1)
        return [*sorted(cuts.tolist()), self.rows]


PROBLEMS = (
    Problem(2, 8, 2048, 2048, "f32", 1.0),
    Problem(16, 8, 2048, 2048, "f32", 1.0),
    Problem(64, 8, 1024, 2048, "f32", 1.0),
    Problem(512, 8, 1024, 1024, "f32", 1.0),
    Problem(2048, 4, 512, 512, "f32", 1.0),
    Problem(16, 8, 2048, 2048, "bf16", 0.9),
    Problem(512, 8, 1024, 1024, "bf16", 0.75),
)


def rows() -> Iterator[Row]:
    """One row for each problem, where torch is here."""
    if "torch" not in peers.absent():
        for problem in PROBLEMS:
            yield Row(GROUP, str(problem), partial(_make, problem))


def _make(problem: Problem, small: bool) -> Case:
    torch = peers.find("torch")
    assert torch is not None
    p = problem.less() if small else problem
    kind = torch.bfloat16 if p.dtype == "bf16" else torch.float32
    x, w = (
        torch.from_numpy(make_random(shape, seed=k)).to(kind)
        for k, shape in enumerate(((p.rows, p.k), (p.groups, p.k, p.n)))
    )
    ends, found = torch.tensor(p.ends()), torch.empty(p.rows, p.n, dtype=kind)
    theirs = torch.empty_like(found)
    ours = peers.find_prebuilt("grouped_matmul")
    assert ours is not None
    nbytes = sum(t.nbytes for t in (x, w, found))
    calls = {
        OURS: (partial(ours, x, w, ends, out=found), found),
        "torch": (partial(_loop, torch, x, w, ends, theirs), theirs),
    }
    contenders = [
        Contender(who, call, "out", nbytes, result=partial(_as_f64, out))
        for who, (call, out) in calls.items()
    ]
    claims = [Claim("out", "cubepy out", ("torch out",), p.floor)]
    expected = partial(_expected, _as_f64(x), _as_f64(w), p.ends())
    return Case(contenders, claims, expected, rtol=2.0**-7, atol=p.k * 1e-5)


def _loop(torch: Any, x: Any, w: Any, ends: Any, out: Any) -> None:
    begin = 0
    for group, end in enumerate(ends.tolist()):
        if end > begin:
            torch.mm(x[begin:end], w[group], out=out[begin:end])
        begin = end


def _expected(x: np.ndarray, w: np.ndarray, ends: list[int]) -> np.ndarray:
    begins = [0, *ends[:-1]]
    return np.concatenate(
        [x[a:b] @ w[g] for g, (a, b) in enumerate(zip(begins, ends, strict=True))]
    )


def _as_f64(x: Any) -> np.ndarray:
    return x.double().numpy()
