"""What NVIDIA's driver is asked for: streams, events, contexts, memory pools. It is made up."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from cubepy.array.order import Ordered
from cubepy.artifact import Artifact, Data, Slot
from cubepy.runtimes.registry import find_device
from cubepy.targets import cuda_target
from tests.devices import fake_cuda
from tests.devices.fake_cuda import DEFAULT_POOL, PRIMARY, Result
from tests.devices.kernels import increment

N = 64


def artifact(name: str) -> Artifact:
    return Artifact(cuda_target("sm_90a"), name, b"", (Slot("x", Data(), ""),), (1, 1, 1), ())


class Kernels:
    """Kernels of one array, in Python."""

    def __init__(self, driver: fake_cuda.Driver) -> None:
        self.device: Any = find_device("cuda:0")
        self._driver = driver
        self._loaded: list[Any] = []

    def __call__(
        self,
        x: cp.Array,
        do: Callable[[np.ndarray], Any],
        stream: cp.Stream | None = None,
        name: str = "k",
        is_read: bool = False,
    ) -> None:
        """Launch `do` with the elements of an array."""
        elements = ctypes.c_float * x.size
        self._driver.kernels[name] = lambda at: do(np.ctypeslib.as_array(elements.from_address(at)))
        memory = read_memory(x)
        assert memory is not None
        queue = None if stream is None else stream.handle
        block = (ctypes.c_uint64 * 4)(memory.address, 1, 1, 1)
        with Ordered(self.device, queue, (memory,), () if is_read else None) as used:
            self._loaded.append(self.device.load(artifact(name)))
            self.device.launch(self._loaded[-1], block, 1, 1, used)


@pytest.fixture
def launch(driver: fake_cuda.Driver) -> Iterator[Kernels]:
    kernels = Kernels(driver)
    yield kernels
    kernels._loaded.clear()  # by this driver; the test's report would keep it longer


def add(value: float) -> Callable[[np.ndarray], Any]:
    def work(x: np.ndarray) -> None:
        x += value

    return work


# The device's own queue


def test_work_is_not_in_the_default_stream(driver: fake_cuda.Driver, launch: Kernels):
    x = cp.zeros(N, device="cuda:0")
    launch(x, add(1))
    np.testing.assert_array_equal(x.numpy(), np.ones(N))
    x.copy_from(cp.ones(N, device="cuda:0"))
    del x
    gc.collect()
    (_, own), *_ = driver.launched
    assert "NON_BLOCKING" in driver.flags[own]
    assert not driver.streams.get(0)


def test_freeing_an_array_leaves_the_default_stream_alone(driver: fake_cuda.Driver):
    busy = driver.enqueue(0, lambda: None)
    x = cp.zeros(N, device="cuda:0")
    del x
    cp.zeros(N, device="cuda:0").numpy()
    assert not busy.is_done


def test_memory_comes_from_a_pool_of_our_own(driver: fake_cuda.Driver):
    cp.zeros(N, device="cuda:0")
    assert driver.pools.pop(DEFAULT_POOL) == {}, "the pool of other libraries was changed"
    (own,) = driver.pools.values()
    assert own == {"CU_MEMPOOL_ATTR_RELEASE_THRESHOLD": 2**64 - 1}
    cp.release_memory()
    assert own["trimmed to"] == 0


def test_an_array_that_is_freed_waits_for_its_readers(driver: fake_cuda.Driver, launch: Kernels):
    seen: list[float] = []
    x = cp.ones(N, device="cuda:0")
    for _ in range(3):
        launch(x, lambda v: seen.append(float(v.sum())), cp.Stream("cuda:0"), is_read=True)
    del x
    gc.collect()
    cp.empty(N, device="cuda:0").numpy()  # the free comes before it in the device's own queue
    assert seen == [N] * 3


def test_memory_of_one_size_is_used_again_without_the_driver(
    driver: fake_cuda.Driver, launch: Kernels, monkeypatch: pytest.MonkeyPatch
):
    addresses = set[int]()
    for k in range(5):
        x = cp.full(N, float(k), device="cuda:0")
        launch(x, add(1))
        addresses.add(x._memory.address)
        if k == 1:
            monkeypatch.setattr(driver, "cuMemFreeAsync", None)
            monkeypatch.setattr(driver, "cuMemAllocFromPoolAsync", None)
        y = x
    assert len(addresses) == 2
    np.testing.assert_array_equal(y.numpy(), np.full(N, 5))


def test_memory_that_is_used_again_comes_after_all_work_on_it(
    driver: fake_cuda.Driver, launch: Kernels
):
    seen: list[float] = []
    for k in range(4):
        x = cp.full(N, float(k), device="cuda:0")
        for queue in (cp.Stream("cuda:0"), None, cp.Stream("cuda:0")):
            launch(x, lambda v: seen.append(float(v.sum())), queue, is_read=True)
        place = x._memory.address
        del x
        gc.collect()
        x = cp.full(N, 100.0, device="cuda:0")
        assert x._memory.address == place
        launch(x, add(1), cp.Stream("cuda:0"))
        np.testing.assert_array_equal(x.numpy(), np.full(N, 101))
        del x
    assert sorted(seen) == sorted([float(k * N) for k in range(4)] * 3)


def test_spare_memory_goes_back_where_there_is_no_room(driver: fake_cuda.Driver):
    freed: list[int] = []
    free = driver.cuMemFreeAsync

    def count(address: int, stream: int) -> Any:
        freed.append(address)
        driver.room += 512
        return free(address, stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "cuMemFreeAsync", count)
        x, y = cp.empty(N, device="cuda:0"), cp.empty(N, device="cuda:0")
        del x, y
        gc.collect()
        assert not freed
        driver.room = 1000
        z = cp.full(300, 2.0, device="cuda:0")  # 1536 bytes
        assert len(freed) == 2
        np.testing.assert_array_equal(z.numpy(), np.full(300, 2))
        driver.room = 1000
        with pytest.raises(cp.DeviceError, match="E504"):
            cp.empty(300, device="cuda:0")


def test_released_memory_is_not_used_again(driver: fake_cuda.Driver):
    x = cp.empty(N, device="cuda:0")
    place = x._memory.address
    del x
    gc.collect()
    cp.release_memory()
    assert cp.empty(N, device="cuda:0")._memory.address != place


def test_other_libraries_get_arrays_in_the_default_stream(
    driver: fake_cuda.Driver, launch: Kernels
):
    x = cp.zeros(N, device="cuda:0")
    launch(x, add(1), cp.Stream("cuda:0"))
    interface = x.__cuda_array_interface__
    assert interface["stream"] == 1
    held = np.ctypeslib.as_array((ctypes.c_float * N).from_address(interface["data"][0]))
    driver.enqueue(0, lambda: add(2)(held))
    launch(x, add(3), cp.Stream("cuda:0"))
    driver.enqueue(0, lambda: np.multiply(held, 10, out=held))
    assert (x.numpy() == 60).all()


def test_arrays_of_others_that_tell_no_stream_are_in_the_default_one(driver: fake_cuda.Driver):
    class Foreign:
        def __init__(self, **stream: Any) -> None:
            self.__cuda_array_interface__ = {
                "shape": (4,),
                "typestr": "<f4",
                "data": (4096, False),
                "version": 3,
                **stream,
            }

    known = [Foreign(), Foreign(stream=None), Foreign(stream=1), Foreign(stream=2)]
    found = [read_memory(x) for x in known]
    assert [m.queue for m in found if m is not None] == [0, 0, 0, 2]


# Events


def test_events_are_recycled_and_keep_no_time(driver: fake_cuda.Driver, launch: Kernels):
    one, two = cp.Stream("cuda:0"), cp.Stream("cuda:0")
    x = cp.zeros(N, device="cuda:0")
    before = len(driver.flags)
    for k in range(100):
        launch(x, add(1), (one, two, None)[k % 3])
    made = list(driver.flags.values())[before:]
    assert len(made) <= 3 and all("DISABLE_TIMING" in flags for flags in made)
    np.testing.assert_array_equal(x.numpy(), np.full(N, 100))


def test_streams_that_read_one_array_run_beside_each_other(
    driver: fake_cuda.Driver, launch: Kernels
):
    x = cp.ones(N, device="cuda:0")
    one, two = cp.Stream("cuda:0"), cp.Stream("cuda:0")
    seen: list[str] = []
    launch(x, lambda v: seen.append("one"), one, is_read=True, name="one")
    launch(x, lambda v: seen.append("two"), two, is_read=True, name="two")
    two.synchronize()
    assert seen == ["two"]
    launch(x, add(1), two)
    two.synchronize()
    assert seen == ["two", "one"]


# Contexts


def test_the_callers_context_is_left_as_it_was(driver: fake_cuda.Driver, launch: Kernels):
    driver.contexts[88] = (1, 4)  # of another device
    for context in (0, 88, PRIMARY):
        driver.context = context
        stream, x = cp.Stream("cuda:0"), cp.zeros(N, device="cuda:0")
        assert driver.context == context
        launch(x, add(1), stream)
        x.copy_from(cp.empty(N, pinned=True))
        x.numpy()
        cp.synchronize("cuda:0")
        find_device("cuda:0").memory()
        del x, stream
        gc.collect()
        assert driver.context == context


def test_a_context_with_the_handle_of_another_gets_its_own_code(driver: fake_cuda.Driver):
    driver.kernels["k"] = lambda at: None
    device: Any = find_device("cuda:0")
    block = (ctypes.c_uint64 * 4)(0, 1, 1, 1)
    driver.contexts[99] = (0, 5)
    driver.context = 99
    code = device.load(artifact("k"))
    device.launch(code, block, 1, 1, 0)
    driver.contexts[99] = (0, 6)  # destroyed, and another made
    device.launch(code, block, 1, 1, 0)
    device.launch(code, block, 1, 1, 0)
    assert driver.loaded == [5, 6] and driver.context == 99


def test_the_own_queue_is_the_primary_contexts(driver: fake_cuda.Driver, launch: Kernels):
    driver.contexts[99] = (0, 5)
    driver.context = 99
    x = cp.zeros(N, device="cuda:0")
    launch(x, add(1))
    cp.synchronize("cuda:0")
    assert driver.context == 99 and driver.loaded == [5, 1]


def test_memory_of_others_is_freed_behind_the_primary_contexts_default_stream(
    driver: fake_cuda.Driver, monkeypatch: pytest.MonkeyPatch
):
    recorded, record = list[tuple[int, int]](), driver.cuEventRecord

    def noting(event: int, stream: int) -> Any:
        recorded.append((stream, driver.context))
        return record(event, stream)

    x = cp.zeros(N, device="cuda:0")
    x.__cuda_array_interface__  # which torch reads, and works with in its default stream
    monkeypatch.setattr(driver, "cuEventRecord", noting)
    driver.contexts[99] = (0, 5)
    driver.context = 99
    del x
    gc.collect()
    assert recorded == [(0, PRIMARY)] and driver.context == 99


def test_code_that_dies_stays_loaded(driver: fake_cuda.Driver):
    """A graph that captured its launch may still be replayed."""
    device: Any = find_device("cuda:0")
    code = device.load(artifact("k"))
    assert driver.loaded == [1]
    del code
    gc.collect()
    assert driver.loaded == [1]


# Streams


def test_a_configured_kernel_keeps_its_stream(driver: fake_cuda.Driver):
    kernel = increment.configure(stream=cp.Stream("cuda:0"))
    again = increment.configure(stream=cp.Stream("cuda:0"))
    gc.collect()
    assert kernel.settings.queue != again.settings.queue and not driver.destroyed
    stream = cp.Stream("cuda:0")
    assert increment.configure(stream=stream) is increment.configure(stream=stream)


# Errors


def test_the_kernels_of_a_lost_device_are_named(driver: fake_cuda.Driver, launch: Kernels):
    one, two = cp.Stream("cuda:0"), cp.Stream("cuda:0")
    x, y = cp.zeros(N, device="cuda:0"), cp.zeros(N, device="cuda:0")
    launch(x, add(1), one, name="first")
    launch(y, add(1), two, name="second")
    one.synchronize()
    driver.lost = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    for action in (lambda: cp.empty(N, device="cuda:0"), two.synchronize):
        with pytest.raises(cp.DeviceLostError) as caught:
            action()
        assert str(caught.value).splitlines()[0] == (
            "E509: cuda:0 is lost: CUDA_ERROR_ILLEGAL_ADDRESS; a kernel did it that was launched "
            "since the last wait: second"
        )
    driver.lost = None
