"""`occupancy`: what the driver counts, and which resource of a multiprocessor bounds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.cuda.instructions import has_clusters
from cubepy.runtimes.cuda.occupancy import Multiprocessor, rooms
from tests.devices import fake_cuda
from tests.devices.conftest import require
from tests.devices.kernels import increment

HOPPER = Multiprocessor(132, 2048, 32, 1 << 16, 228 << 10, 1 << 10)


@cp.cube
def through(x: cp.Tensor[cp.f32], size: cp.Comptime):
    """Keeps `size` floats in shared memory."""
    tile = cp.shared(size, cp.f32)
    tile[cp.UNIT_POS] = x[cp.UNIT_POS]
    cp.sync_cube()
    x[cp.UNIT_POS] = tile[cp.CUBE_DIM - 1 - cp.UNIT_POS]


@cp.cube
def greedy(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], count: cp.Comptime):
    """Needs `count` elements twice, so that they stay in registers."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        held = cp.local(count, cp.f32)
        total = cp.f32(0)
        for k in cp.unroll(range(count)):
            held[k] = x[i + k * out.size]
            total += held[k]
        spread = cp.f32(0)
        for k in cp.unroll(range(count)):
            spread += cp.sqrt((held[k] - total) * (held[k] - total))
        out[i] = spread


@pytest.mark.parametrize(
    ("units", "registers", "shared_bytes", "limited_by", "cubes"),
    [
        (256, 32, 0, "units", 8),
        (1024, 16, 0, "units", 2),
        (96, 16, 0, "units", 21),
        (32, 16, 0, "cubes", 32),
        (1, 16, 0, "cubes", 32),
        (256, 40, 0, "registers", 6),
        (256, 255, 0, "registers", 1),
        (96, 65, 0, "registers", 9),
        (256, 32, 48 << 10, "shared memory", 4),
        (32, 168, 100 << 10, "shared memory", 2),
    ],
)
def test_what_bounds(units: int, registers: int, shared_bytes: int, limited_by: str, cubes: int):
    room = rooms(units, registers, shared_bytes, HOPPER)
    assert min(room, key=lambda name: room[name]) == limited_by and room[limited_by] == cubes


@pytest.mark.usefixtures("nvrtc")
def test_what_the_driver_is_asked(driver: fake_cuda.Driver):
    x = cp.zeros(1000, device="cuda:0")
    driver.function |= {"NUM_REGS": 40, "LOCAL_SIZE_BYTES": 24}
    driver.held |= {"cubes": 6}
    found = increment.over(x).occupancy(x)
    assert found == cp.Occupancy(6, 1536, 0.75, 40, 24, 0, "registers", 256)
    assert driver.asked == [("increment", 256, 0)]
    assert increment[4, (16, 4, 2)].occupancy(x=x).units == 6 * 128
    with pytest.raises(AttributeError):
        found.cubes = 7  # type: ignore[misc]


@pytest.mark.usefixtures("nvrtc")
def test_shared_memory_that_a_launch_asks_for_counts(driver: fake_cuda.Driver):
    driver.held |= {"cubes": 3}
    found = through[1, 256].occupancy(cp.zeros(256, device="cuda:0"), 16384)
    assert (found.shared_bytes, found.limited_by, found.fraction) == (65536, "shared memory", 0.375)
    assert driver.asked == [("through", 256, 65536)]


@pytest.mark.usefixtures("nvrtc")
def test_clusters(driver: fake_cuda.Driver):
    x = cp.zeros(1024, device="cuda:0")
    driver.function |= {"REQUIRED_CLUSTER_WIDTH": 2, "REQUIRED_CLUSTER_HEIGHT": 4}
    driver.function |= {"REQUIRED_CLUSTER_DEPTH": 1}
    driver.held |= {"cubes": 8, "clusters": 120}
    clustered = increment.configure(cluster=(2, 4))
    found = clustered[(2, 4), 256].occupancy(x)
    assert (found.clusters, found.cubes, found.limited_by) == (120, 8, "clusters")
    assert found.fraction == 120 * 8 * 256 / (132 * 2048)
    assert driver.asked[1] == (2, 4, 1, 256, 1, 1, 0)
    driver.held |= {"clusters": 132}
    assert clustered[(2, 4), 256].occupancy(x) == replace(
        found, clusters=132, limited_by="units", fraction=1.0
    )


@pytest.mark.usefixtures("nvrtc")
def test_nothing_is_launched(driver: fake_cuda.Driver):
    x = np.zeros(1000, np.float32)
    driver.calls.clear()
    increment.configure(device="cuda:0").over(x).occupancy(x)
    assert not driver.calls


@pytest.mark.parametrize("name", ["cpu", "interpreter", "opencl:0", "metal:0"])
def test_other_devices_tell_nothing(name: str, request: pytest.FixtureRequest):
    if name == "metal:0":
        request.getfixturevalue("fake")
    x = np.zeros(4, np.float32)
    launcher = increment.configure(device=require(name)).over(x)
    with pytest.raises(cp.UnsupportedError) as caught:
        launcher.occupancy(x)
    message = f"E310: occupancy is not available on {name}: only CUDA's driver computes it"
    assert str(caught.value) == message and not x.any()


def test_arguments_are_checked(driver: fake_cuda.Driver):
    with pytest.raises(cp.LaunchError, match="E406"):
        increment[1, 32].occupancy()


# A GPU


def out(x: cp.Array) -> cp.Array:
    return cp.zeros(64, device=x.device)


LAUNCHES: dict[str, Any] = {
    "units": lambda x: increment[1, 256].occupancy(x),
    "cubes": lambda x: increment[1, 32].occupancy(x),
    "registers": lambda x: greedy[1, 256].occupancy(x, out(x), 120),
    "shared memory": lambda x: through[1, 256].occupancy(x, 16384),
}


@pytest.mark.parametrize("limited_by", LAUNCHES)
def test_a_gpu_is_bound_by(cuda: str, limited_by: str):
    x = cp.zeros(1 << 14, device=cuda)
    of: Any = cp.device(cuda).multiprocessor  # type: ignore[attr-defined]
    found = LAUNCHES[limited_by](x)
    assert found.limited_by == limited_by
    assert found.units == found.cubes * (32 if limited_by == "cubes" else 256)
    assert found.fraction == found.units / of.units and 0 < found.fraction <= 1
    assert found.best_cube_dim % 32 == 0 and 32 <= found.best_cube_dim <= 256
    assert found.shared_bytes == (65536 if limited_by == "shared memory" else 0)
    assert found.clusters == 0 and not x.numpy().any()


@pytest.mark.parametrize("count", [1, 24, 40, 64, 120])
@pytest.mark.parametrize("dim", [32, 96, 160, 256, 1024])
def test_the_arithmetic_is_the_drivers(cuda: str, dim: int, count: int):
    x = cp.zeros(1 << 14, device=cuda)
    found = greedy[1, dim].occupancy(x, out(x), count)
    of: Any = cp.device(cuda).multiprocessor  # type: ignore[attr-defined]
    room = rooms(dim, found.registers, found.shared_bytes, of)
    assert min(room.values()) == found.cubes, (found, room)


def test_spills_show(cuda: str):
    x = cp.zeros(1 << 14, device=cuda)
    assert greedy[1, 32].occupancy(x, out(x), 24).local_bytes == 0
    assert greedy[1, 1024].occupancy(x, out(x), 200).local_bytes > 0


def test_clusters_of_a_gpu(cuda: str):
    if not has_clusters(cp.device(cuda).target.arch):
        pytest.skip("no clusters before sm_90")
    x = cp.zeros(1 << 14, device=cuda)
    found = increment.configure(cluster=4)[8, 256].occupancy(x)
    of: Any = cp.device(cuda).multiprocessor  # type: ignore[attr-defined]
    assert 0 < found.clusters <= found.cubes * of.count // 4
    assert 0 < found.fraction <= 1 and found.limited_by in ("clusters", "units")
