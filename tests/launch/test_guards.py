"""Guarded calls: native code passes on what a guard holds for, and nothing else."""

from __future__ import annotations

import gc
import weakref
from array import array
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.guards import Guard, Guarded, Seen, guard_calls, see
from cubepy.runtimes.native.launching.process import existing_executor


@cp.cube
def touch(out):
    out.flat[0] = 1


@pytest.fixture(autouse=True)
def executor():
    for _ in range(3):
        touch[1, 1](np.zeros(1, np.float32))
    if existing_executor() is None:
        pytest.skip("launches go through Python here")


class Switch(Guarded):
    """Says who was called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "python", args, kwargs


def native(*args: Any, **kwargs: Any) -> Any:
    return "native", args, kwargs


def seen(*arguments: Any) -> tuple[Seen, ...]:
    found = see(arguments)
    assert found is not None
    return found


def guarded(*arguments: Any, words: Any = (), variables: Any = (), **added: Any) -> Switch:
    switch = Switch()
    assert guard_calls(switch, [Guard(native, added, seen(*arguments), words, variables)])
    return switch


X = np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("other", "holds"),
    [
        (np.ones((4, 6), np.float32), True),
        (np.zeros((4, 6), np.int32), False),
        (np.zeros((4, 7), np.float32), False),
        (np.zeros((4, 6, 1), np.float32), False),
        (np.zeros((6, 4), np.float32).T, False),
        (np.zeros((4, 12), np.float32)[:, ::2], False),
        (np.zeros((4, 6), ">f4"), False),
        (np.zeros((4, 6), np.float32).view(np.recarray), False),
        (None, False),
        (3, False),
    ],
)
def test_an_array_must_have_the_very_metadata(other: Any, holds: bool):
    who, args, _ = guarded(X)(other)
    assert who == ("native" if holds else "python") and args[0] is other


@pytest.mark.parametrize("value", [3, -1, 1 << 70, 0.5, True, None, "text", float("inf")])
def test_numbers_and_strings_must_be_equal_and_of_one_type(value: Any):
    call = guarded(value)
    assert call(value)[0] == "native"
    others: list[Any] = [4, 3.0, -0.5, False, "other", X, (1,), 1 << 71]
    assert all(call(other)[0] == "python" for other in others)


def test_keywords_are_added_and_given_ones_go_to_python():
    call = guarded(X, 2, n=5, config={"a": 1})
    who, args, kwargs = call(X, 2)
    assert (who, len(args), kwargs) == ("native", 2, {"n": 5, "config": {"a": 1}})
    assert call(X, 2, m=1)[0] == "python" and call(X)[0] == "python" and call()[0] == "python"


def test_words_and_variables_must_be_as_they_were():
    counter = array("q", [7])
    variable: ContextVar[Any] = ContextVar("variable", default=None)
    word = counter.buffer_info()[0], 7
    call = guarded(X, words=(word,), variables=((variable, None),))
    assert call(X)[0] == "native"
    counter[0] = 8
    assert call(X)[0] == "python"
    counter[0] = 7
    token = variable.set("other")
    assert call(X)[0] == "python"
    variable.reset(token)
    assert call(X)[0] == "native"


def test_the_first_guard_that_holds_passes_on():
    switch = Switch()
    guards = [Guard(native, {"k": k}, seen(k)) for k in range(5)]
    assert guard_calls(switch, guards)
    assert [switch(k)[2] for k in range(5)] == [{"k": k} for k in range(5)]
    assert guard_calls(switch, guards[:2])
    assert [switch(k)[0] for k in range(5)] == ["native", "native", "python", "python", "python"]


def test_an_exception_of_the_target_is_the_callers():
    def fail(x: Any) -> None:
        raise ValueError("mine")

    switch = Switch()
    assert guard_calls(switch, [Guard(fail, {}, seen(1))])
    with pytest.raises(ValueError, match="mine"):
        switch(1)


def test_an_argument_that_native_code_does_not_know_is_left_to_python():
    assert see([(1, 2)]) is None and see([X, np.float32(1)]) is None
    assert guarded(X)((1, 2))[0] == "python"


def test_a_target_may_change_the_guards_that_called_it():
    switch = Switch()

    def change(x: Any) -> int:
        guard_calls(switch, [Guard(native, {}, seen(x + 1))])
        return x

    assert guard_calls(switch, [Guard(change, {}, seen(1))])
    assert switch(1) == 1 and switch(2)[0] == "native" and switch(1)[0] == "python"


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    touch[1, 1](torch.zeros(1))
    touch[1, 1](torch.zeros(1))
    x = torch.zeros(4, 6)
    call = guarded(x)
    assert call(torch.ones(4, 6))[0] == "native"
    for other in (torch.zeros(4, 6).double(), torch.zeros(6, 4).T, torch.zeros(24), X):
        assert call(other)[0] == "python"


class Holder(Switch):
    """With attributes of its own, as functions that are wrapped have."""

    def __init__(self) -> None:
        self.held: Any = None


def test_nothing_is_kept_alive_by_a_guard():
    holder, array = Holder(), np.zeros((5, 7), np.float32)
    holder.held = holder, array  # a cycle
    assert guard_calls(holder, [Guard(native, {"config": holder}, seen(array))])
    assert holder(array)[0] == "native" and holder.held[1] is array
    gone = [weakref.ref(array), weakref.ref(holder)]
    del array
    holder.held = holder
    gc.collect()
    assert gone[0]() is None
    holder._guards = (bytes(16), [])
    del holder
    gc.collect()
    assert gone[1]() is None
