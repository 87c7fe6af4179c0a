"""Rows, claims and checks; and that `python -m bench --check` compares everybody."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.measure import Sample, Samples
from bench.report import format_seconds, make_console, print_report
from bench.results import Report, evaluate, failed
from bench.suite import Case, Claim, Contender, Row, all_rows, check, select

ROOT = Path(__file__).parents[2]


def make_case(**claims) -> Case:
    contenders = [
        Contender("cubepy", lambda: np.ones(3), "out", nbytes=100),
        Contender("torch", lambda: np.ones(3), "out", nbytes=100),
        Contender("cubepy", lambda: np.ones(3), "half", nbytes=50),
    ]
    return Case(contenders, [Claim(name, *claim) for name, claim in claims.items()])


SAMPLES = Samples(
    {
        "cubepy out": [Sample(1.0)] * 3,
        "torch out": [Sample(2.0)] * 3,
        "cubepy half": [Sample(0.5)] * 3,
    }
)
ROW = Row("group", "label", lambda small: make_case())


def verdict(*claim) -> Any:
    return evaluate(ROW, make_case(claim=claim), SAMPLES).find_verdict("claim")


def test_claims_compare_with_their_floor():
    assert verdict("cubepy out", ("torch out",), 1.9).holds is True
    assert verdict("cubepy out", ("torch out",), 2.1).holds is False
    assert verdict("cubepy out", ("torch out",)).holds is None


def test_rates_allow_for_unequal_work():
    assert verdict("cubepy out", ("cubepy half",), 1.0, True).value == pytest.approx(1.0)
    assert verdict("cubepy out", ("cubepy half",), 1.0, False).value == pytest.approx(0.5)


def test_limits_are_for_the_value_itself():
    assert verdict("cubepy out", (), None, False, 1.5).holds is True
    assert verdict("cubepy out", (), None, False, 0.5).holds is False


def test_absent_peers_make_no_claims():
    assert verdict("cubepy out", ("jax out",), 1.0) is None
    assert verdict("jax out", ("torch out",), 1.0) is None
    assert verdict("cubepy out", ("jax out", "torch out"), 1.0).against == "torch out"


def test_checks_find_wrong_values_shapes_and_nan():
    expected = np.arange(3.0)
    results = {
        "right": expected,
        "value": expected + 1e-3,
        "shape": expected[:2],
        "nan": np.array([0, np.nan, 2]),
    }
    contenders = [Contender(who, lambda r=r: r) for who, r in results.items()]
    found = check(Case(contenders, reference=lambda: expected))
    assert [problem.split()[0] for problem in found] == ["value", "shape", "nan"]


def test_contenders_may_have_their_own_reference():
    contender = Contender("a", lambda: np.zeros(3), reference=lambda: np.ones(3))
    assert check(Case([contender], reference=lambda: np.zeros(3)))


def test_selection():
    rows = [Row("sum", "a*b", lambda small: make_case()), Row("max", "b", lambda s: make_case())]
    assert select(rows, None) == rows
    assert select(rows, "a*b") == rows[:1]
    assert select(rows, "max/*") == rows[1:]


def test_names_are_unique():
    names = [row.name for row in all_rows()]
    assert len(set(names)) == len(names)


def test_reports_survive_json_and_print():
    case = make_case(out=("cubepy out", ("torch out",), 3.0))
    rows = [evaluate(ROW, case, SAMPLES), failed(ROW, ValueError("why"))]
    wide = Row("sum", "label", ROW.make)
    rows += [evaluate(wide, case, SAMPLES), failed(wide, ValueError("why"))]
    report = Report({"cpu": "a fake"}, 2, ["jax"], rows)
    assert Report.from_json(report.to_json()) == report
    console = make_console()
    with console.capture() as capture:
        print_report(report, console)
    assert "0 of 2 claims hold" in capture.get()
    assert "why" in capture.get() and "jax" in capture.get()


def test_seconds_have_three_digits():
    found = [format_seconds(s) for s in (1.5, 0.0123, 123e-6, 4.567e-6, 89e-9)]
    assert found == ["1.50 s", "12.3 ms", "123 us", "4.57 us", "89.0 ns"]


def test_everybody_is_right():
    """In one group; CI has the command check all rows, with every peer there."""
    command = [sys.executable, "-m", "bench", "--check", "--only", "sum/*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rows checked, 0 problems" in done.stdout
