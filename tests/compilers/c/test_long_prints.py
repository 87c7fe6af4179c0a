"""Prints of more values than a call of printf takes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def show(x: cp.Lines):
    print("100%", x[0], f"{x[1][0]:5.2f}|", x[1])


def calls(target: str, width: int) -> list[tuple[str, int]]:
    """The format of each call, and how many values it has."""
    x: Any = np.ones(2 * width, np.float32)
    text = show.configure(line_size=width)[1, 1].inspect(x, target=target)
    found = re.findall(r'printf\("(.*?)"(.*)\);', text)
    return [(written, values.count("(double)")) for written, values in found]


@pytest.mark.parametrize(("width", "counts"), [(4, [9]), (16, [32, 1]), (64, [32, 32, 32, 32, 1])])
def test_cuda_prints_32_values_at_a_time(width: int, counts: list[int]):
    found = calls("cuda:sm_80", width)
    assert [values for _, values in found] == counts
    assert [len(re.findall(r"%[^%]", text.replace("%%", ""))) for text, _ in found] == counts
    lanes = ", ".join(["%.9g"] * width)
    assert "".join(text for text, _ in found) == rf"100%% [{lanes}] %5.2f| [{lanes}]\012"


def test_others_print_all_at_once():
    assert [values for _, values in calls("hip:gfx942", 64)] == [129]
