"""Ctrl-C in cubes, and who else handles signals or holds a lock."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

import pytest

from cubepy.runtimes.native.interrupts import pythons_handler
from cubepy.runtimes.native.pool import interrupts_of_main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cubes are left on Linux alone")

HEAD = """
import faulthandler, os, signal, subprocess, sys, time
import numpy as np, cubepy as cp

def send(script):
    command = ["/bin/sh", "-c", script.replace("ME", str(os.getpid()))]
    return subprocess.Popen(command, start_new_session=True)

@cp.cube
def busy(out, times: int):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        v = out[i]
        for _ in range(times):
            v = cp.sqrt(v * v + 1.0)
        out[i] = v

@cp.cube
def chatty(times: int):
    for _ in range(times):
        cp.print(cp.CUBE_POS, "said")

signal.signal(signal.SIGINT, signal.default_int_handler)
out = np.ones(4, np.float32)
launch = busy.over(out)
for none in 4 * (0, -1):  # natively too, for small numbers and others: imports lose signals
    launch(out, none)
    chatty[64, 1](none)
"""


def run(script: str, threads: int = 2, before: str = "") -> list[str]:
    """The lines that a script prints, which begins with `HEAD`; `before`: its first launch. Scripts
    send signals where they would catch them: one may come before the launch on a busy machine."""
    kept = {"CUBEPY_CACHE": "1"}  # each would compile the pool and the launcher again
    environment = os.environ | kept | {"CUBEPY_NUM_THREADS": str(threads)}
    head = HEAD.replace("out = ", f"{before}\nout = ", 1)
    command = [sys.executable, "-c", head + script]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_prints_go_on_after_an_interrupt(threads: int):
    """`printf` has a lock, and others wait for it nearly always."""
    lines = run(
        """
for k in range(6):
    try:
        sent = send(f"sleep 0.{k % 5 + 10}; kill -INT ME")
        chatty[64, 1](1 << 40)
    except KeyboardInterrupt:
        print("left", flush=True)
    sent.wait()
print("now", flush=True)
chatty[64, 1](500)
""",
        threads,
    )
    place = lines.index("now")
    assert lines[:place].count("left") == 6
    assert sorted(lines[place + 1 :]) == sorted(f"{k} said" for k in range(64) for _ in range(500))


def test_a_handler_that_calls_the_one_before_it():
    """It came after ours, and has ours as the one before it."""
    lines = run(
        """
faulthandler.register(signal.SIGINT, file=sys.stdout, chain=True)
launch(out, 1)
for _ in range(2):
    try:
        sent = send("sleep 0.1; kill -INT ME")
        launch(out, 1_000_000_000_000)
    except KeyboardInterrupt:
        print("left", flush=True)
"""
    )
    assert lines.count("left") == 2
    assert 1 <= sum("most recent call first" in line for line in lines) <= 2


def test_a_handler_of_a_library_that_was_there_first():
    """Python handles the signal later, as after `signal.signal`; PoCL brings such a handler."""
    lines = run(
        """
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ in range(2):
    try:
        sent = send("sleep 0.2; kill -INT ME")
        launch(out, 1_000_000_000_000)
    except KeyboardInterrupt:
        print("left", flush=True)
    sent.wait()
""",
        before="faulthandler.register(signal.SIGINT)",
    )
    assert lines == ["left", "left"]


def test_pythons_handler_is_found():
    def handler(number: int) -> int:
        held = (ctypes.c_int64 * 32)()
        ctypes.CDLL(None).sigaction(number, None, held)
        return held[0]

    before = [handler(number) for number in range(1, 65)]
    found = pythons_handler()
    assert [handler(number) for number in range(1, 65)] == before
    kept = signal.signal(signal.SIGUSR2, lambda *_: None)
    assert handler(signal.SIGUSR2) == found
    signal.signal(signal.SIGUSR2, kept)


def test_handlers_of_other_signals_are_not_left():
    """One waits for a pipe while SIGINT comes; the next SIGINT finds the cube itself."""
    lines = run(
        """
reader, writer = os.pipe()
faulthandler.register(signal.SIGUSR1, file=writer)
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, bytes(4096))
except BlockingIOError:
    os.set_blocking(writer, True)
sent = send(
    "sleep 0.2; kill -USR1 ME; sleep 0.2; kill -INT ME; sleep 0.2;"
    f"head -c 65536 /proc/ME/fd/{reader} > /dev/null; sleep 0.2; kill -INT ME"
)
try:
    launch(out, 1_000_000_000_000)
except KeyboardInterrupt:
    print("left", signal.pthread_sigmask(signal.SIG_BLOCK, []))
os.set_blocking(reader, False)
print(b"most recent call first" in os.read(reader, 1 << 20))
print(sent.wait())
"""
    )
    assert lines == ["left set()", "True", "0"]


def test_a_handler_of_urgent_data_stays():
    """Workers are not notified then, and end their cubes. Else the handler runs on the stack for
    handlers, where a thread has one."""
    lines = run(
        """
import ctypes
def handler():
    words = (ctypes.c_uint64 * 32)()
    ctypes.CDLL(None).sigaction(signal.SIGURG, None, words)
    return words[0], bool(words[17] & 0x08000000)

def interrupt(times):
    try:
        sent = send("sleep 0.2; kill -INT ME")
        launch(out, times)
    except KeyboardInterrupt:
        print("left")
    assert sent.wait() == 0

out = np.ones(1 << 18, np.float32)
launch = busy.over(out)
launch(out, 1)
signal.signal(signal.SIGURG, lambda *_: None)
before = handler()
interrupt(40_000)
assert handler() == before
signal.signal(signal.SIGURG, signal.SIG_DFL)
for _ in range(5):
    interrupt(1 << 30)
    if handler()[0]:  # it was shared, which busy machines may not do
        break
assert handler()[0] not in (0, before[0]) and handler()[1]
"""
    )
    assert lines[:2] == ["left", "left"] and set(lines) == {"left"}


def test_an_exception_that_is_gone_is_still_an_interrupt():
    """A launch that was left never ends as if it were done."""
    with pytest.raises(KeyboardInterrupt):
        interrupts_of_main().raise_again()
