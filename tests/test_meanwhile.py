"""`cubepy.meanwhile`: jobs that are done while another compiles."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import numpy as np
import pytest

import cubepy as cp
from cubepy.meanwhile import TURN, all_done, note_compilation, uninterrupted

word: ContextVar[str] = ContextVar("word", default="none")


def named(log: list[tuple[str, bool]], name: str, compiles: bool = False) -> Callable[[], str]:
    """A job that logs its name and whether this thread does it."""
    caller = threading.get_ident()

    def job() -> str:
        if compiles:
            note_compilation()
        log.append((name, threading.get_ident() == caller))
        return name

    return job


def test_no_jobs_but_one_are_done_here() -> None:
    log: list[tuple[str, bool]] = []
    assert all_done([named(log, "a", compiles=True)]) == ["a"]
    assert log == [("a", True)]


def test_without_a_compilation_all_are_done_here_the_last_first() -> None:
    log: list[tuple[str, bool]] = []
    assert all_done([named(log, name) for name in "abc"]) == ["a", "b", "c"]
    assert log == [("c", True), ("b", True), ("a", True)]


def test_others_are_done_in_a_thread_from_the_first_compilation_on() -> None:
    log: list[tuple[str, bool]] = []
    done = threading.Event()

    def first() -> str:
        log.append((word.get(), threading.current_thread() is threading.main_thread()))
        done.set()
        return "first"

    def last() -> str:
        note_compilation()
        assert done.wait(60)  # would never end if this thread had to do the other job
        note_compilation()
        return "last"

    token = word.set("of the caller")
    try:
        assert all_done([first, last]) == ["first", "last"]
    finally:
        word.reset(token)
    assert log == [("of the caller", False)]


def test_each_thread_hands_on_what_waits() -> None:
    log: list[tuple[str, bool]] = []
    jobs = [named(log, name, compiles=True) for name in "abc"]
    assert all_done(jobs) == ["a", "b", "c"]
    assert sorted(log) == [("a", False), ("b", False), ("c", True)]
    note_compilation()  # nothing waits any more


def test_an_error_of_the_thread_is_raised_here() -> None:
    def fails() -> str:
        raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        all_done([fails, named([], "last", compiles=True)])
    with pytest.raises(ValueError, match="the first"):
        all_done([fails, named([], "last")])


def test_an_error_of_the_last_comes_when_no_job_is_under_way() -> None:
    ended = threading.Event()

    def first() -> None:
        ended.wait(0.05)
        ended.set()

    def fails() -> None:
        note_compilation()
        raise ValueError("the last")

    with pytest.raises(ValueError, match="the last"):
        all_done([first, fails])
    assert ended.is_set()


def test_without_threads_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    log: list[tuple[str, bool]] = []
    jobs = [named(log, name, compiles=True) for name in "ab"]
    assert all_done(jobs) == ["a", "b"]
    assert log == [("b", True), ("a", True)]


def test_the_launches_of_a_prebuilt_function_compile_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """A convolution packs its weights: two kernels, of which one is compiled in a thread."""
    from cubepy.compilers.llvm import toolchain

    monkeypatch.setenv("CUBEPY_CACHE", "0")
    threads: list[bool] = []
    compile_one = toolchain.to_object

    def noted(*given: object) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return compile_one(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(toolchain, "to_object", noted)
    random = np.random.default_rng()
    x = random.standard_normal((1, 19, 9, 9)).astype(np.float32)
    w = random.standard_normal((37, 19, 3, 3)).astype(np.float32)
    with cp.settings(checked=True):  # a form that no other test has compiled
        found = cp.kernels.conv2d(x, w, padding=1)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    wanted = np.einsum("nchwij,fcij->nfhw", windows, w.astype(np.float64))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert sorted(threads) == [False, True]


class Left(BaseException):
    """What a handler raises to leave what the program does."""


@pytest.fixture
def leaving() -> Iterator[None]:
    """A signal that leaves with `Left`."""

    def leave(*_: object) -> None:
        raise Left

    before = signal.signal(signal.SIGINT, leave)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_job_that_a_signal_must_not_leave_is_ended_by_its_thread(leaving: None) -> None:
    done, gone = threading.Event(), threading.Event()

    def job() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert gone.wait(10)
        done.set()

    with pytest.raises(Left):
        uninterrupted(job)
    assert not done.is_set()
    gone.set()
    assert done.wait(10)


def test_what_it_gives_and_raises() -> None:
    def fails() -> None:
        raise ValueError("of the job")

    assert uninterrupted(lambda: threading.current_thread()) is not threading.main_thread()
    with pytest.raises(ValueError, match="of the job"):
        uninterrupted(fails)


def test_a_signal_in_the_middle_of_a_compilation_leaves_llvm_whole(
    leaving: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context of LLVM was closed before its module, and the process crashed later."""
    from llvmlite import binding

    monkeypatch.setenv("CUBEPY_CACHE", "0")
    verify = binding.ModuleRef.verify

    def interrupted(module: binding.ModuleRef) -> None:
        signal.raise_signal(signal.SIGINT)
        verify(module)

    @cp.cube
    def kernel(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        out[cp.UNIT_POS] = x[cp.UNIT_POS] * 3.25

    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(binding.ModuleRef, "verify", interrupted)
        with pytest.raises(Left):
            kernel[1, 4](x, out)
    kernel[1, 4](x, out)
    np.testing.assert_array_equal(out, 3.25)


def test_threads_take_turns_sooner_while_two_compile() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    def look() -> None:
        note_compilation()
        seen.append(sys.getswitchinterval())

    def fail() -> None:
        raise ValueError("no kernel")

    all_done([look, look])
    assert seen == pytest.approx([TURN, TURN])
    assert sys.getswitchinterval() == before
    with pytest.raises(ValueError, match="no kernel"):
        all_done([look, fail])
    assert sys.getswitchinterval() == before
    try:
        all_done([look, lambda: sys.setswitchinterval(0.003)])  # what others set stays
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)
