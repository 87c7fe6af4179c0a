"""Calls of prebuilt functions that native code describes: where they may go the short way."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.session import current

call = import_module("cubepy.kernels.calls.call")


def refuse(*given: Any) -> Any:
    raise AssertionError("the long way")


def test_calls_inside_tuning_are_as_short_and_each_choice_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
):
    x = np.random.default_rng(0).normal(size=(37, 53))
    choices: tuple[dict[str, Any], ...] = ({}, {"level": "off"}, {"level": "off", "seed": 3})
    for choice in choices:
        with cp.tuning(**choice):
            for _ in range(3):
                cp.kernels.sum(x, axis=1)
        with cp.tuning(**choice), monkeypatch.context() as patch:
            patch.setattr(call, "library_of", refuse)
            np.testing.assert_allclose(cp.kernels.sum(x, axis=1), x.sum(1))
            with cp.tuning(seed=77), pytest.raises(AssertionError, match="long"):
                cp.kernels.sum(x, axis=1)


def test_equal_choices_are_one_object_and_others_are_not():
    found = []
    for seed in (1, 1, 2):
        with cp.tuning(level="off", seed=seed):
            found.append(current.get())
    assert found[0] is found[1] and found[0] is not found[2]
