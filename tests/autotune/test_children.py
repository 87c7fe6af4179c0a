"""Forked children, in programs that handle signals and wait for children of their own."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubepy.autotune import children, isolated
from cubepy.autotune.ahead import Ahead
from cubepy.autotune.trials import CRASHED, OK
from cubepy.cache.folder import Folder
from tests.autotune.test_isolated import crash, search

pytestmark = pytest.mark.skipif(not isolated.can_fork(), reason="no fork here")


@pytest.fixture
def ignores_children() -> Iterator[None]:
    """The system waits for children in place of this process."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("ignores_children")
def test_searches_where_the_system_waits_for_children():
    trials = search({3: lambda: os._exit(3)})
    assert trials.status == [OK, OK, OK, CRASHED] and trials.outcome is not None
    assert trials.details[3] == "the process ended"


@pytest.mark.usefixtures("ignores_children")
def test_processes_compile_where_the_system_waits_for_them():
    def make(k: int) -> None:
        if k == 1:
            os._exit(7)

    with Ahead(make, range(3), 10.0, time.perf_counter, workers=1) as workers:
        found, wanted = {}, [0, 1, 2]
        while wanted and (ready := workers.next(wanted, time.perf_counter() + 30.0)) is not None:
            wanted.remove(ready.k)
            found[ready.k] = ready
    assert found[1].failure == "the process ended" and found[2].is_made


def test_a_child_that_the_program_waited_for_has_ended():
    pid = children.fork(lambda: None)
    os.waitpid(pid, 0)
    assert children.ended(pid) == children.wait(pid) == children.UNSEEN
    children.kill(pid)


def test_children_hold_no_descriptors_but_their_own():
    """The end of a pipe is seen, and a file's lock is free, while they live."""
    (lost, sent), (read, own) = os.pipe(), os.pipe()

    def work() -> None:
        os.write(own, f"{os.fstat(sent).st_rdev == os.stat(os.devnull).st_rdev}".encode())
        time.sleep(100)

    pid = children.fork(work, (own,))
    os.close(sent)
    assert os.read(read, 10) == b"True" and os.read(lost, 1) == b""
    assert children.ended(pid) is None
    children.kill(pid)
    children.wait(pid)
    for fd in (lost, read, own):
        os.close(fd)


def test_the_programs_handlers_of_signals_do_not_run_in_children():
    """A signal to the group of processes is the program's concern, and ends no candidate."""
    read, write = socket.socketpair()
    write.setblocking(False)
    wakeup = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(9))
    try:
        trials = search({2: lambda: os.kill(os.getpid(), signal.SIGUSR1), 3: crash})
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.set_wakeup_fd(wakeup)
    assert trials.status == [OK, OK, OK, CRASHED]
    assert not select.select([read], [], [], 0.0)[0]
    read.close()
    write.close()


def test_signals_reach_children_alone():
    """A number may be that of another process by now: here this one."""
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    try:
        children.send(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not came
    pid = children.fork(lambda: time.sleep(100))
    children.kill(pid)
    assert os.WTERMSIG(children.wait(pid)) == signal.SIGKILL


def test_children_keep_code_in_folders_that_were_open(tmp_path: Path):
    folder = Folder(str(tmp_path / "code"))
    pid = children.fork(lambda: folder.write("entry", b"code"), own=())
    assert children.wait(pid) == 0
    assert folder.read("entry") == b"code"


def test_a_stopped_child_goes_on_where_the_thread_that_forked_it_ends():
    read, write = os.pipe()
    found: list[int] = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        os.write(write, b"on")

    def begin() -> None:
        found.append(children.fork(work, own=(write,), outlives=True))
        os.waitid(os.P_PID, found[0], os.WSTOPPED)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    os.close(write)
    assert os.read(read, 2) == b"on"
    os.close(read)
    assert children.wait(found[0]) == 0
