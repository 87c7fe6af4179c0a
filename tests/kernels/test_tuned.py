"""Prebuilt functions under the autotuner: plans are measured, results stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import records
from cubepy.autotune.records import IMPORTED, Pick, find_records
from cubepy.autotune.tuner import Choice
from cubepy.kernels.calls import tuned
from cubepy.kernels.matmul import variants
from cubepy.kernels.matmul.problem import ROWS, Problem
from cubepy.kernels.matmul.strategies import choose
from cubepy.targets import cpu_target, cuda_target


@pytest.fixture(autouse=True)
def store(tmp_path: Path) -> Iterator[Path]:
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path


def factors(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m * n + k)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    return a.astype(np.float32), b.astype(np.float32)


def quick() -> Any:
    return cp.tuning(level="quick", budget_s=4.0, limit_s=4.0)


def test_nothing_is_measured_and_nothing_kept_unless_somebody_says_so(store: Path):
    a, b = factors(40, 48, 32)
    with cp.settings(cache=False):
        assert np.allclose(cp.kernels.matmul(a, b), a @ b, atol=1e-3)
    assert not (store / "tuning-1").exists()


def test_a_plan_is_measured_once_and_the_caller_sees_its_results_alone():
    a, b = factors(40, 48, 130)
    before = a.tobytes(), b.tobytes()
    out = np.full((40, 48), 7, np.float32)
    with quick():
        assert cp.kernels.matmul(a, b, out=out) is out
        np.testing.assert_allclose(out, a @ b, atol=1e-3)
        assert (a.tobytes(), b.tobytes()) == before
        (key,) = find_records().measured_keys()
        assert key.kernel == "cubepy.kernels.matmul" and key.problem.startswith("[64,64,256,1,")
        found = find_records().measurements(key)
        assert found["default"].status == "ok" and len(found) > 2
        assert {m.status for m in found.values()} <= {"ok", "untried", "late"}
        cp.kernels.matmul(a, b)
        cp.kernels.matmul(*factors(41, 40, 129))  # of the same key
    assert len(find_records().measured_keys()) == 1 and len(find_records().searches(key)) == 1


def test_what_is_imported_is_picked_by_default_and_what_is_not_legal_is_not(monkeypatch: Any):
    a, b = factors(64, 64, 600)
    with quick():
        cp.kernels.matmul(a, b)
    (key,) = find_records().measured_keys()
    texts = list(find_records().measurements(key))
    find_records().put_picks([Pick(key, texts[-1], IMPORTED)])
    seen: list[str] = []
    plain = tuned.Picks.pick

    def noted(self: Any, family: str, key: Any, default: Any, others: Any) -> Any:
        found = plain(self, family, key, default, others)
        seen.append("default" if found is default else "other")
        return found

    monkeypatch.setattr(tuned.Picks, "pick", noted)
    x, y = factors(63, 63, 590)  # the key is the same, the plan is new
    np.testing.assert_allclose(cp.kernels.matmul(x, y), x @ y, atol=1e-3)
    assert seen == ["default", "other"]
    find_records().put_picks([Pick(key, '{"depth":7}', IMPORTED)])
    seen.clear()
    x, y = factors(62, 62, 580)
    with cp.tuning(level="off"):
        np.testing.assert_allclose(cp.kernels.matmul(x, y), x @ y, atol=1e-3)
    assert seen == ["default"]


def test_results_without_axes_and_scratch_memory_are_measured_too():
    x = np.random.default_rng(0).normal(size=(1 << 14,)).astype(np.float32)
    with quick():
        assert np.isclose(cp.kernels.matmul(x, x), np.dot(x, x), rtol=1e-4)


@pytest.mark.parametrize("target", [cpu_target("x86-64-v3"), cuda_target("sm_90a")])
@pytest.mark.parametrize("extents", [(1, 500, 300), (9, 40, 70), (500, 300, 200)])
def test_variants_are_other_configurations_with_texts_of_their_own(target: Any, extents: Any):
    m, n, k = extents
    problem = Problem(m, n, k, (), cp.f32, cp.f32, cp.f32, ROWS, ROWS)  # type: ignore[arg-type]
    first = choose(target, problem)
    found = variants.others(target, first, problem)
    assert len(found) >= 2 and len(set(found.values())) == len(found)
    assert first not in found.values() and all(type(c) is type(first) for c in found.values())


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("extents", [(45, 133, 40), (100, 71, 70), (130, 260, 20)])
def test_cuts_into_more_or_fewer_cubes_give_the_same(
    dtype: Any, extents: Any, monkeypatch: pytest.MonkeyPatch
):
    m, n, k = extents
    rng = np.random.default_rng(extents)
    a = rng.integers(-9, 9, size=(2, m, k)).astype(dtype)
    b = rng.integers(-9, 9, size=(2, k, n)).astype(dtype)
    wanted = a.astype(np.int32) @ b.astype(np.int32)
    places: list[tuned.Place] = []
    monkeypatch.setattr(tuned, "_is_open", lambda library: True)
    monkeypatch.setattr(tuned, "_choose", _noting(places, 0))
    assert (cp.kernels.matmul(a, b) == wanted).all()
    assert sum('"cut"' in text for text in places[0].texts) >= 2
    for k in range(len(places[0].texts)):
        find_records().put_picks([])  # plans are made anew
        monkeypatch.setattr(tuned, "_choose", _noting([], k))
        assert (cp.kernels.matmul(a, b) == wanted).all()


def test_every_family_with_configurations_gives_right_results_whatever_is_picked():
    """Each candidate of each place is imported in turn; results are those of NumPy."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(70, 90)).astype(np.float32)
    image, filters = rng.normal(size=(1, 3, 9, 20)), rng.normal(size=(5, 3, 3, 3))
    image, filters = image.astype(np.float32), filters.astype(np.float32)
    long = rng.normal(size=(600, 40)).astype(np.float32)
    wide = np.ascontiguousarray(long.T)
    softmax = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    calls: list[tuple[str, Any, Any]] = [
        ("matmul", lambda: cp.kernels.matmul(long.T, long), long.T @ long),
        ("reduction", lambda: cp.kernels.sum(x, axis=1), x.sum(1)),
        ("reduction", lambda: cp.kernels.sum(x, axis=0), x.sum(0)),
        ("normalisation", lambda: cp.kernels.softmax(x), softmax),
        ("position", lambda: cp.kernels.argmax(wide, axis=1), wide.argmax(1)),
        ("convolution", lambda: cp.kernels.conv2d(image, filters, padding=1), None),
    ]
    for family, call, wanted in calls:
        places: list[tuned.Place] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tuned, "_is_open", lambda library: True)
            patch.setattr(tuned, "_choose", _noting(places, 0))
            made = call()
        wanted = made if wanted is None else wanted
        assert [place.family for place in places] == [family] and len(places[0].texts) > 1
        for k in range(len(places[0].texts)):
            find_records().put_picks([])  # plans are made anew
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tuned, "_is_open", lambda library: True)
                patch.setattr(tuned, "_choose", _noting([], k))
                np.testing.assert_allclose(call(), wanted, rtol=1e-4, atol=1e-3)


def _noting(places: list[tuned.Place], index: int) -> Any:
    """In place of a choice: note the place, and take the candidate at a position."""

    def choose(place: tuned.Place, *rest: Any) -> Any:
        places.append(place)
        return Choice(index)

    return choose


class Times:
    """A function that is an object."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, v: Any) -> Any:
        """Its product."""
        return v * self.by


def hooked(k: Any, x: np.ndarray, f: Any) -> dict[str, tuple[Any, np.ndarray]]:
    """Calls with a function that doubles, and what they give."""
    twice, row = 2 * x.astype(np.float64), x.shape[1:]
    soft = np.exp(twice - twice.max(1, keepdims=True))
    norm = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return {
        "sum": (k.sum(x, axis=1, prologue=f), twice.sum(1)),
        "sum, on write": (k.sum(x, axis=0, epilogue=f), 2 * x.sum(0, dtype=np.float64)),
        "mean": (k.mean(x, axis=0, prologue=f), twice.mean(0)),
        "max": (k.max(x, axis=1, prologue=f), twice.max(1)),
        "var": (k.var(x, axis=1), x.var(1, dtype=np.float64)),
        "softmax": (k.softmax(x, prologue=f), soft / soft.sum(1, keepdims=True)),
        "layer_norm": (k.layer_norm(x, row, epilogue=lambda v, i: f(v)), 2 * norm),
        "max_pool1d": (k.max_pool1d(x[None], 2, prologue=f)[0], twice.reshape(9, -1, 2).max(2)),
    }


@pytest.mark.parametrize(
    "f",
    [lambda v: v * 2, partial(mul, 2), Times(2.0), Times(2.0).__call__, cp.cube(lambda v: v + v)],
)
def test_functions_of_any_kind_are_in_no_key(f: Any):
    a, b = factors(40, 48, 64)
    with quick():
        cp.kernels.matmul(a, b)
    x = np.random.default_rng(2).normal(size=(9, 14)).astype(np.float32)
    for name, (found, expected) in hooked(cp.kernels, x, f).items():
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
