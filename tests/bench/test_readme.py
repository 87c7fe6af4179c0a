"""The README's tables are those of the recorded results."""

from __future__ import annotations

from bench.readme import README, filled


def test_tables_are_current():
    text = README.read_text(encoding="utf-8")
    assert filled(text) == text, "run python -m bench.readme"
