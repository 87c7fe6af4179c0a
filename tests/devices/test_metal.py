"""The Metal runtime: the calls it makes, and what it does where one fails."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.metal import platform
from tests.devices import fake_metal
from tests.devices.kernels import add, increment


@cp.cube
def scaled(x: cp.Tensor[cp.f32], a: cp.f32, out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * a


def test_the_calls_of_a_launch(fake: fake_metal.Metal):
    """Buffers in the order of the arguments, then all numbers, eight bytes each."""
    x, out = cp.full(100, 3, device="metal:0"), cp.zeros(100, device="metal:0")
    scaled[2, 64](x[10:74], 2.5, out[:64])
    assert fake.gpu.calls[0] == ("pipeline",)
    assert fake.gpu.calls[1:3] == [("buffer", 0, 40), ("buffer", 1, 0)]
    (name, index, size), dispatch, commit = fake.gpu.calls[3:]
    assert (name, index) == ("bytes", 2) and size % 8 == 0
    assert dispatch == ("dispatch", (2, 1, 1), (64, 1, 1)) and commit == ("commit",)
    assert fake.gpu.queue.pending, "a launch does not wait"
    np.testing.assert_array_equal(out.numpy(), np.repeat([7.5, 0], [64, 36]))
    assert not fake.gpu.queue.pending
    assert fake.gpu.options == [{"language": 3 << 16, "math": 0}]


def test_faults_come_last(fake: fake_metal.Metal):
    x, out = np.ones(64, np.float32), np.zeros(70, np.float32)
    with pytest.raises(cp.OutOfBoundsError, match="`x` with extent 64"):
        scaled.configure(device="metal:0", checked=True)[2, 64](x, 2.0, out)
    indices = [call[1] for call in fake.gpu.calls if call[0] in ("buffer", "bytes")]
    assert indices == [0, 1, 2, 3]


def test_fast_math_is_off_on_older_systems(fake: fake_metal.Metal, monkeypatch: pytest.MonkeyPatch):
    @cp.cube
    def fill(x):
        x[cp.UNIT_POS] = 2.0

    monkeypatch.setattr(fake, "MTLCompileOptions", fake_metal.OlderOptions)
    x = cp.zeros(4, device="metal:0")
    fill[1, 4](x)
    assert fake.gpu.options == [{"language": 3 << 16, "fast": 0}]


def test_a_failure_of_the_gpu_names_the_launch(fake: fake_metal.Metal):
    x = cp.zeros(4, device="metal:0")
    fake.gpu.queue.fails = True
    increment.over(x)(x)
    with pytest.raises(cp.DeviceError, match="the launch of increment failed: Caused GPU Address"):
        cp.synchronize("metal:0")
    fake.gpu.queue.fails = False
    cp.synchronize("metal:0")


def test_no_memory(fake: fake_metal.Metal):
    fake.gpu.room = 100
    with pytest.raises(cp.DeviceError, match="E504"):
        cp.empty(1 << 20, device="metal:0")


def test_many_launches_wait_now_and_then(fake: fake_metal.Metal):
    x = cp.zeros(8, device="metal:0")
    for _ in range(150):
        increment.over(x)(x)
    assert len(fake.gpu.queue.pending) <= 64
    np.testing.assert_array_equal(x.numpy(), np.full(8, 150, np.float32))


def test_a_build_that_fails(fake: fake_metal.Metal, monkeypatch: pytest.MonkeyPatch):
    wrong = fake_metal.NSError("program_source:3:9: error: use of undeclared identifier 'y'")
    refuse = lambda *_: (None, wrong)
    monkeypatch.setattr(fake.gpu, "newLibraryWithSource_options_error_", refuse)
    x = cp.zeros(4, device="metal:0")
    with pytest.raises(cp.DeviceError, match="E508.*the build failed.*undeclared identifier"):
        add.over(x)(x, x, x)


@pytest.mark.skipif(sys.platform == "darwin", reason="Metal is here")
def test_elsewhere_nothing_is_imported():
    code = "import sys, cubepy as cp; cp.devices(); assert 'Metal' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(cp.DeviceError, match="(?s)E501.*macOS is missing"):
        cp.device("metal:0")


@pytest.mark.skipif(sys.platform != "darwin", reason="no Metal here")
def test_metal_itself():
    assert platform.found_devices(), "every Mac since 2012 knows Metal"
    x, out = cp.full(1000, 3, device="metal:0"), cp.zeros(1000, device="metal:0")
    scaled.over(out)(x, 2.5, out)
    np.testing.assert_array_equal(out.numpy(), np.full(1000, 7.5, np.float32))
