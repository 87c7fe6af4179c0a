"""Searches on a GPU: results are right, inputs stay, budgets hold, and calls go on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from cubepy.autotune import behind, records, sandbox
from cubepy.autotune.records import find_records
from tests.optional import require_package

FAR = (1 << 31) - 1000
"""Elements: beyond all memory of a sandbox, and still in 32 bits, in which indices of small arrays
are computed: 1 << 45 would be no distance there."""
torch = require_package("torch")
pytestmark = pytest.mark.usefixtures("cuda", "store")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def statuses() -> dict[str, str]:
    (key,) = find_records().measured_keys()
    return {c: m.status for c, m in find_records().measurements(key).items()}


def factors(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").bfloat16()


@cp.cube
def scale(x, out, n: cp.Comptime, factor: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * factor


@cp.autotuned(space={"n": (1, 2, 4, 8)})
def double(x, out, *, config):
    n = config["n"]
    scale.over(-(-x.numel() // n))(x, out, n, 2)


@cp.cube
def add_one(x, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < x.size:
            x.flat[i + k] = x.flat[i + k] + 1


@cp.autotuned(space={"n": (1, 2, 4)})
def increase(x, *, config):
    add_one.over(-(-x.numel() // config["n"]))(x, config["n"])


@cp.autotuned(space={"n": (1, 2), "factor": (2, 3)})
def wrong(x, out, *, config):
    scale.over(-(-x.numel() // config["n"]))(x, out, config["n"], config["factor"])


@cp.autotuned(space={"n": (1, 2, 4, 1 << 40)})
def fails(x, out, *, config):
    if config["n"] > 4:
        raise MemoryError("no such tile")
    scale.over(-(-x.numel() // config["n"]))(x, out, config["n"], 2)


@cp.cube
def spin(flag, x, out, rounds: cp.Comptime):
    """Doubles, once the flag is set or it has counted for some seconds."""
    count = cp.i64(0)
    while count < rounds and cp.atomic.load(flag, 0) == 0:
        count += 1
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


@cp.autotuned(space={"rounds": (0, 1, 1 << 25), "cube_dim": (64, 128)})
def hangs(flag, x, out, *, config):
    spin.over(out.numel(), cube_dim=config["cube_dim"])(flag, x, out, config["rounds"])


@cp.cube
def stray(x, out, distance: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i + distance] = x.flat[i] * 2


@cp.autotuned(space={"distance": (0, FAR), "cube_dim": (64, 128)})
def strays(x, out, *, config):
    stray.over(out.numel(), cube_dim=config["cube_dim"])(x, out, config["distance"])


@pytest.fixture
def with_sandbox() -> None:
    """A process for first runs serves: a search does not wait seconds for a new one."""
    found = sandbox.take("cuda:0")
    assert found.is_ready(60.0)
    sandbox.give_back(found)


def test_a_kernel_that_hangs_costs_its_limit_alone(with_sandbox: None):
    x, flag = torch.randn(100, device="cuda"), torch.zeros(1, device="cuda", dtype=torch.int32)
    out = torch.empty_like(x)
    with cp.tuning(level="quick", budget_s=60.0, limit_s=4.0):
        hangs(flag, x, out)
        assert torch.equal(out, x * 2) and hangs.pick(flag, x, out)["rounds"] < 2
        found = statuses()
        late = {c for c, s in found.items() if s == "late"}
        assert late and all(str(1 << 25) in c for c in late)
        assert set(found.values()) <= {"ok", "late", "untried"}  # a new process takes seconds
    assert_context_is_there()


def test_a_kernel_that_loses_its_context_takes_no_other(with_sandbox: None):
    x, out = torch.randn(100, device="cuda"), torch.zeros(100, device="cuda")
    with cp.tuning(level="quick", budget_s=60.0, limit_s=4.0):
        with pytest.warns(RuntimeWarning, match="crashed"):
            strays(x, out)
        assert torch.equal(out, x * 2) and strays.pick(x, out)["distance"] == 0
        crashed = {c for c, s in statuses().items() if s == "crashed"}
        assert crashed and all(str(FAR) in c for c in crashed)
        assert set(statuses().values()) <= {"ok", "crashed", "late", "untried"}
    assert_context_is_there()


def assert_context_is_there() -> None:
    """The process's own work on the GPU goes on."""
    assert torch.equal(torch.ones(3, device="cuda").cumsum(0).cpu(), torch.tensor([1.0, 2.0, 3.0]))


def test_what_was_not_compiled_in_time_is_tried_by_a_later_call(
    monkeypatch: pytest.MonkeyPatch, with_sandbox: None
):
    for name in ("behind.LONGEST_S", "search.MAKING_S"):  # compilers have a low priority
        monkeypatch.setattr(f"cubepy.autotune.{name}", 60.0)
    a, b = factors(1000, 1600), factors(1600, 2000)
    cp.kernels.matmul(a, b)
    with cp.tuning(level="quick"):
        cp.kernels.matmul(a, b)
        first = list(statuses().values()).count("ok")
        assert behind.wait(90.0)
    with cp.tuning(level="quick", budget_s=10.0):  # other tests may use the processors
        found = cp.kernels.matmul(a, b)
    wanted = a.double() @ b.double()
    assert ((found.double() - wanted).abs().max() / wanted.abs().max()) < 1e-2
    assert list(statuses().values()).count("ok") > first
    assert not {"wrong", "crashed", "failed"} & set(statuses().values())
    (key,) = find_records().measured_keys()
    assert len(find_records().searches(key)) == 2
    with cp.tuning(level="quick"):
        cp.kernels.matmul(a, b)
    assert len(find_records().searches(key)) == 2


def test_nothing_is_measured_while_a_graph_is_captured():
    a, b = factors(256, 320), factors(320, 384)
    cp.kernels.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with cp.tuning(level="quick"), torch.cuda.graph(graph):
        found = cp.kernels.matmul(a, b)
    assert not find_records().measured_keys()
    graph.replay()
    wanted = a.double() @ b.double()
    assert ((found.double() - wanted).abs().max() / wanted.abs().max()) < 1e-2


def test_a_product_is_tuned_within_its_budget_and_its_factors_stay():
    a, b = factors(512, 640), factors(640, 768)
    cp.kernels.matmul(a, b)  # the first call of a process loads libraries
    before = a.clone(), b.clone()
    with cp.tuning(level="quick"):
        began = time.perf_counter()
        found = cp.kernels.matmul(a, b)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
    wanted = a.double() @ b.double()
    assert ((found.double() - wanted).abs().max() / wanted.abs().max()) < 1e-2
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])
    assert took < 3.0  # other tests may use the processors; `bench.tuning` is strict
    assert "ok" in statuses().values() and not {"wrong", "crashed"} & set(statuses().values())


def test_what_is_updated_in_place_stays_for_the_search(with_sandbox: None):
    x = torch.arange(100_003, device="cuda", dtype=torch.float32)
    with cp.tuning(level="quick", budget_s=60.0):
        increase(x)
    assert torch.equal(x, torch.arange(100_003, device="cuda", dtype=torch.float32) + 1)
    assert set(statuses().values()) == {"ok"}


def test_a_wrong_candidate_and_one_that_fails_are_left_out(with_sandbox: None):
    x = torch.randn(50_001, device="cuda")
    out = torch.full_like(x, float("nan"))
    with cp.tuning(level="quick", budget_s=60.0):
        with pytest.warns(RuntimeWarning, match="is wrong"):
            wrong(x, out)
        assert torch.equal(out, x * 2) and wrong.pick(x, out)["factor"] == 2
        fails(x, out)
    assert torch.equal(out, x * 2) and fails.pick(x, out)["n"] <= 4


def test_the_best_so_far_serves_while_a_search_runs_behind():
    x = torch.randn(1 << 20, device="cuda")
    out = torch.empty_like(x)
    with cp.tuning(level="quick", budget_s=2.0, background=True):
        began = time.perf_counter()
        double(x, out)
        torch.cuda.synchronize()
        assert time.perf_counter() - began < 1.5
        while not find_records().picks() and time.perf_counter() - began < 30:
            out.fill_(float("nan"))
            double(x, out)
            assert torch.equal(out, x * 2)
            time.sleep(0.01)
        assert find_records().picks()
        double(x, out)
    assert torch.equal(out, x * 2)


def test_tuned_launches_on_tensors_become_native():
    x = torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    with cp.tuning(level="quick", budget_s=2.0):
        double(x, out)
    for _ in range(5):
        out.fill_(0)
        double(x, out)
        assert torch.equal(out, x * 2)
    y, other = torch.randn(7, 3, device="cuda"), torch.empty(7, 3, device="cuda")
    double(y, other)
    assert torch.equal(other, y * 2)


def test_a_race_ends_where_memory_does(hopper: str):
    x = torch.randn(16384, 16384, device="cuda")
    with cp.tuning(level="full", budget_s=10.0):
        cp.kernels.sum(x, axis=1)
    (pick,) = find_records().picks()
    (search,) = find_records().searches(pick.key)
    (bound,) = (m["bound"] for m in search["log"] if m["do"] == "race")
    times = [m["s"] for m in search["log"] if m["do"] == "sample"]
    assert 0.2e-3 < bound <= min(times) * 1.02
    assert '"roofline"' in pick.about or min(times) > 1.05 * bound
