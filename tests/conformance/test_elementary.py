"""Elementary functions through the real compilers, by the bound of the op table."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy.ir.types import DType
from tests import ulp
from tests.lang.test_math_expansions import (
    BINARY,
    SPECIAL,
    WIDE,
    exact_error,
    reference,
    samples,
    wide_is_wide,
)

NAMES = sorted(ulp.FUNCTIONS)
HALVES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROUNDED_TWICE = 0.51
"""ULP of a small float whose function is computed in f32."""


def skip_absent(dtype: str, lacks: set[DType]) -> None:
    if dtype in {t.name for t in lacks}:
        pytest.skip(f"the device has no {dtype}")


def arguments_of(name: str, dtype: str, count: int) -> list[tuple[Any, ...]]:
    if dtype in HALVES and name not in BINARY:
        return [
            (np.arange(1 << 16, dtype=np.uint16)[:: max(1, 60_000 // count)].view(HALVES[dtype]),)
        ]
    if dtype in HALVES:
        with np.errstate(all="ignore"):
            return [
                tuple(a.astype(HALVES[dtype]) for a in each) for each in samples(name, "f32", count)
            ]
    return list(samples(name, dtype, count))


def exact(name: str, dtype: str, arguments: tuple[Any, ...]) -> Any:
    if dtype not in HALVES:
        return reference(name, dtype, arguments)
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) for a in arguments]
        quiet = [np.where(np.isnan(a), np.nan, a) for a in wide]  # C's hypot looks at signals
        return np.asarray(WIDE[name](*quiet), np.float64)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_bounds(
    device: str, is_slow: bool, is_text: bool, lacks: set[DType], name: str, dtype: str
):
    skip_absent(dtype, lacks)
    bound = ROUNDED_TWICE if dtype in HALVES else ulp.FUNCTIONS[name].ulp
    one = is_slow or (is_text and dtype != "f32")
    for arguments in arguments_of(name, dtype, 12 if is_slow else 20_000):
        is_judged = dtype != "f64" or wide_is_wide(name, dtype)
        wanted = exact(name, dtype, arguments) if is_judged else None
        for width in (1,) if one else (1, "auto") if dtype == "f32" else ("auto",):
            found = ulp.compute(name, *arguments, device=device, line_size=width)
            if is_judged:
                errors = ulp.ulps(found, wanted)
                worst = int(np.argmax(errors))
                assert errors[worst] <= bound, ([a[worst] for a in arguments], found[worst])
            else:
                check_few(name, arguments, found, bound)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_fast_math_changes_none(device: str, is_slow: bool, lacks: set[DType], dtype: str):
    """Their methods take remainders of rounding, which are 0 where floats are taken for reals."""
    skip_absent(dtype, lacks)
    ways: tuple[bool | str, ...] = (False, True) if device == "cpu" else ("auto",)
    for name in NAMES:
        for arguments in arguments_of(name, dtype, 12 if is_slow else 2_000):
            wanted = ulp.compute(name, *arguments, device=device)
            for way in ways:
                options: dict[str, Any] = {"fast_math": True, "vectorise": way}
                found = ulp.compute(name, *arguments, device=device, **options)
                np.testing.assert_array_equal(found, wanted, name)


def check_few(name: str, arguments: tuple[Any, ...], found: Any, bound: float) -> None:
    """By mpmath, where nothing faster is precise enough."""
    for k in range(0, len(found), max(1, len(found) // 200)):
        point = [float(a[k]) for a in arguments]
        if all(map(math.isfinite, point)):
            assert exact_error(name, point, found[k]) <= bound, (point, found[k])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_special_values(device: str, lacks: set[DType], name: str, dtype: Any):
    skip_absent({np.float64: "f64"}.get(dtype, ""), lacks)
    pairs = [(x if isinstance(x, tuple) else (x,), y) for x, y in SPECIAL[name]]
    pairs += [] if name in BINARY else [((math.nan,), math.nan)]
    with np.errstate(over="ignore"):
        columns = [np.array(column, dtype) for column in zip(*(p[0] for p in pairs), strict=True)]
        want = np.array([p[1] for p in pairs]).astype(dtype)
    if dtype is np.float16:  # the inputs are others now
        with np.errstate(all="ignore"):
            want = np.asarray(WIDE[name](*(c.astype(np.float64) for c in columns))).astype(dtype)
    got = ulp.compute(name, *columns, device=device)
    finite = np.isfinite(want)
    assert (ulp.ulps(got[finite], want[finite].astype(np.float64)) <= 2).all()
    np.testing.assert_array_equal(got[~finite], want[~finite])
    numbers = ~np.isnan(want)
    if dtype is not np.float16:
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "sys.argv",
        ["ulp", "exp", "sqrt" if "sqrt" in NAMES else "erf", "--step", "65537", "--processes", "1"],
    )
    ulp.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| function | max ULP | at | bound | seconds |"
    for line in lines[4:]:
        _, name, error, place, bound, _, _ = (part.strip() for part in line.split("|"))
        assert name in NAMES and 0.4 < float(error) <= float(bound) and math.isfinite(float(place))
