"""Events between queues, with a made-up driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.registry import find_device
from tests.devices import fake_cuda
from tests.devices.kernels import increment


def test_the_event_of_a_join_lives_until_the_wait(driver: fake_cuda.Driver):
    """Another thread would record it again, so that the wait were for other work."""
    device: Any = find_device("cuda:0")
    one, two = cp.Stream("cuda:0"), cp.Stream("cuda:0")
    waited: list[tuple[int, list[int]]] = []
    wait = driver.cuStreamWaitEvent

    def seen(stream: int, event: int, flags: int) -> Any:
        waited.append((int(event), [int(e) for spare in device._spare.values() for e in spare]))
        return wait(stream, event, flags)

    driver.cuStreamWaitEvent = seen  # type: ignore[method-assign]
    device.join(one.handle, two.handle)
    ((event, spare),) = waited
    assert event not in spare


@pytest.mark.parametrize("stream", [True, "0", 1.5, object()])
def test_what_is_no_stream_is_refused(stream: Any):
    with pytest.raises(cp.LaunchError, match="E420.*stream"):
        increment.configure(stream=stream)


def test_handles_are_integers_of_any_kind():
    assert increment.configure(stream=np.int64(7)) is not None


def test_streams_are_refused_where_there_are_none():
    x = np.zeros(8, np.float32)
    with pytest.raises(cp.UnsupportedError, match="E310"):
        increment.configure(stream=7).over(x)(x)
    assert not x.any()


def test_options_of_dlpack(driver: fake_cuda.Driver):
    x = cp.asarray(np.arange(4, dtype=np.float32), device="cuda:0")
    assert x.__dlpack__(dl_device=(2, 0), copy=False) is not None
    assert x.__dlpack__(max_version=(1, 0), copy=True) is not None
    with pytest.raises(BufferError, match="not on"):
        x.__dlpack__(dl_device=(1, 0))
    held = cp.asarray(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(np.from_dlpack(held), [0, 1, 2, 3])
