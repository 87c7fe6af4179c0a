"""Searches on OpenCL devices: results are right, inputs stay, what strays ends another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import records, sandbox
from cubepy.autotune.hardware import hardware_of
from cubepy.autotune.records import find_records
from cubepy.runtimes.registry import find_device
from tests.devices.conftest import require

pytestmark = pytest.mark.usefixtures("store")
DEVICE = "opencl:0"
PATIENT: Any = {"level": "full", "budget_s": 120.0, "limit_s": 60.0}
"""Searches that end well also beside other work."""
FAR = (1 << 31) - 1000
"""Elements: still in 32 bits, so that they are no distance of 0."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """Records of its own, and a process for first runs that serves."""
    require(DEVICE)
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path)):
        found = sandbox.take(DEVICE)
        assert found.is_ready(60.0)
        sandbox.give_back(found)
        yield tmp_path


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    yield
    sandbox.end_all()


def statuses() -> dict[str, str]:
    (key,) = find_records().measured_keys()
    return {c: m.status for c, m in find_records().measurements(key).items()}


def numbers(*shape: int) -> tuple[Any, np.ndarray]:
    host = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return cp.asarray(host, device=DEVICE), host


@cp.cube
def scale(x, out, n: cp.Comptime, factor: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * factor


@cp.cube
def stray(x, out, distance: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i + distance] = x.flat[i] * 2


@cp.autotuned(space={"n": (1, 2), "factor": (2, 3)})
def double(x, out, *, config):
    """By memory of its own."""
    n = config["n"]
    between = cp.asarray(np.full(x.shape, np.nan, np.float32), device=x.device)
    scale.over(-(-x.size // n))(x, between, n, 1)
    scale.over(-(-x.size // n))(between, out, n, config["factor"])


@cp.autotuned(space={"distance": (0, FAR)})
def strays(x, out, *, config):
    stray.over(out.size)(x, out, config["distance"])


@cp.autotuned(space={"n": (1, 2, 4)})
def increase(x, *, config):
    scale.over(-(-x.size // config["n"]))(x, x, config["n"], 3)


def test_a_function_is_tuned_and_wrong_ones_are_left_out():
    x, host = numbers(1003)
    out = cp.asarray(np.full(1003, np.nan, np.float32), device=DEVICE)
    with cp.tuning(**PATIENT), pytest.warns(RuntimeWarning, match="is wrong"):
        double(x, out)
    np.testing.assert_array_equal(out.numpy(), host * 2)
    np.testing.assert_array_equal(x.numpy(), host)
    found = statuses()
    assert {s for c, s in found.items() if '"factor":3' in c} == {"wrong"}
    assert {s for c, s in found.items() if '"factor":2' in c} == {"ok"}
    assert double.pick(x, out)["factor"] == 2


def test_what_strays_ends_a_process_of_its_own():
    x, host = numbers(100)
    out = cp.asarray(np.zeros(100, np.float32), device=DEVICE)
    with cp.tuning(**PATIENT), pytest.warns(RuntimeWarning, match="crashed"):
        strays(x, out)
    np.testing.assert_array_equal(out.numpy(), host * 2)
    assert sorted(statuses().values()) == ["crashed", "ok"]


def test_what_is_updated_in_place_stays_for_the_search():
    x, host = numbers(517)
    with cp.tuning(**PATIENT):
        increase.pick(x)
        np.testing.assert_array_equal(x.numpy(), host)
        increase(x)
    np.testing.assert_array_equal(x.numpy(), host * np.float32(3))
    assert set(statuses().values()) == {"ok"}


def test_prebuilt_functions_are_tuned_and_remembered():
    (a, one), (b, other) = numbers(67, 93), numbers(93, 41)
    with cp.tuning(**PATIENT):
        found = cp.kernels.matmul(a, b)
    wanted = one.astype(np.float64) @ other.astype(np.float64)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert list(statuses().values()).count("ok") > 1 and "wrong" not in statuses().values()
    (key,) = find_records().measured_keys()
    assert key.hardware == hardware_of(find_device(DEVICE)).key
    assert key.hardware != hardware_of(find_device("cpu")).key
    with cp.tuning(level="quick"):
        np.testing.assert_array_equal(cp.kernels.matmul(a, b).numpy(), found.numpy())
    assert len(find_records().searches(key)) == 1


def test_a_function_is_timed_by_whole_launches():
    """A hundred launches of a long loop take about a hundred times as long as one."""
    from cubepy.autotune.measure import Timer

    x, _ = numbers(1 << 18)
    out = cp.asarray(np.zeros(1 << 18, np.float32), device=DEVICE)
    launches: list[int] = []

    def launch() -> None:
        launches.append(1)
        scale.over(out.size)(x, out, 1, 2)

    timer = Timer(DEVICE, False)
    assert timer.seconds(launch, 7) > 0 and len(launches) == 8
