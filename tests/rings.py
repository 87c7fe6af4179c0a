"""Kernels with rings and warpgroups in any order of their planes: what waits, what overlaps.

A kernel's IR is cut down to what decides how it synchronises: barriers, copies of the copy engine,
products, and the shared memory that they and ordinary accesses touch, but no numbers. Each unit is
a generator of these events; a machine runs planes and copies in a random order, and raises
`Overlap` where memory is read or written too early, and `Hang` where nothing can go on.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

from cubepy.ir.core import Kernel
from tests.events import NAMED, Writer, integer, size_of

ATOMS = (128, 1024, 512, 256)
"""Bytes of eight rows of a tile by its swizzle in a descriptor; they stand for what is read."""
TOGETHER = frozenset(
    ("ldmatrix", "stmatrix", "cluster_sync", "wgmma", "wgmma_commit", "wgmma_wait", "set_registers")
    + ("sync_cube", "sync_plane", "sync_units", "sync", "arrive", "plane")
)
"""Events of all units of a plane at once."""


class Overlap(AssertionError):
    """Memory is accessed while something else may write or read it."""


class Hang(AssertionError):
    """Nothing can go on."""


@dataclass
class Barrier:
    """An mbarrier: arrivals that a phase takes and still waits for, bytes, phases that ended."""

    count: int
    waiting: int
    nbytes: int = 0
    phases: int = 0

    def arrive(self, arrivals: int, nbytes: int) -> None:
        self.waiting, self.nbytes = self.waiting - arrivals, self.nbytes + nbytes
        if self.waiting < 0:
            raise Overlap("a barrier has more arrivals than its phase takes")
        if self.waiting == 0 and self.nbytes == 0:
            self.waiting, self.phases = self.count, self.phases + 1


@dataclass(eq=False)
class Load:
    """A copy to shared memory that is under way."""

    cube: Cube
    begin: int
    end: int
    barrier: int


@dataclass(eq=False)
class Lane:
    """A unit: what it does next, what it stored before a fence, and what is stored of its own."""

    run: Generator[Any, Any, None]
    unit: int
    event: Any = None
    stored: list[tuple[int, int]] = field(default_factory=list)
    leaving: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])
    is_done: bool = False

    def go_on(self, result: Any = None) -> None:
        try:
            self.event = self.run.send(result)
        except StopIteration:
            self.is_done, self.event = True, None
            if any(self.leaving):
                raise Overlap(f"unit {self.unit} ends before its copies have read memory") from None


@dataclass(eq=False)
class Plane:
    cube: Cube
    number: int
    lanes: list[Lane]
    asleep: list[int] | None = None
    """The barrier that it waits at."""
    groups: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])
    """What products of each group read; the last group is open."""
    retired: int = 0

    @property
    def team(self) -> list[Plane]:
        """The planes of its warpgroup."""
        first = self.number // 4 * 4
        return self.cube.planes[first : first + 4]


@dataclass(eq=False)
class Cube:
    rank: int
    planes: list[Plane] = field(default_factory=list)
    barriers: dict[int, Barrier] = field(default_factory=dict)
    named: dict[int, list[int]] = field(default_factory=dict)
    """Of each barrier of the hardware, how many units have arrived."""
    values: dict[int, Any] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)

    @property
    def lanes(self) -> list[Lane]:
        return [lane for plane in self.planes for lane in plane.lanes]

    @property
    def is_done(self) -> bool:
        return all(lane.is_done for lane in self.lanes)


class Machine:
    """The cubes of a cluster, run in a random order."""

    def __init__(
        self,
        kernel: Kernel,
        arguments: Mapping[str, Any],
        *,
        cubes: int,
        cluster: int = 1,
        first: int = 0,
        arrays: Mapping[str, Any] | None = None,
        lanes: tuple[int, ...] = (0, 1, 31),
        seed: int = 0,
    ) -> None:
        writer = Writer(kernel, arguments, arrays or {})
        make, self.sites = writer.generator(), writer.sites
        self.random, self.priorities = Random(seed), {}
        self.cubes = [Cube(rank) for rank in range(cluster)]
        self.everyone = [0]
        for cube in self.cubes:
            for number in range(prod(kernel.cube_dim) // 32):
                units = [32 * number + k for k in lanes]
                made = [Lane(make(u, first + cube.rank, cubes, cube.rank), u) for u in units]
                cube.planes.append(Plane(cube, number, made))
        for cube in self.cubes:
            for lane in cube.lanes:
                lane.go_on()

    def run(self) -> None:
        """Until all units have ended."""
        while not all(cube.is_done for cube in self.cubes):
            ready: list[Any] = [load for cube in self.cubes for load in cube.loads]
            ready += [p for cube in self.cubes for p in cube.planes if self.choices(p)]
            if not ready:
                raise Hang(self.report())
            chosen = max(ready, key=self.priority)
            if isinstance(chosen, Load):
                chosen.cube.loads.remove(chosen)
                chosen.cube.barriers[chosen.barrier].arrive(0, chosen.begin - chosen.end)
            else:
                self.run_for_a_while(chosen)
        for cube in self.cubes:
            if cube.loads or any(count for (count,) in cube.named.values()):
                raise Overlap("a cube ends with a copy under way, or units missing at a barrier")

    def run_for_a_while(self, plane: Plane) -> None:
        """Until the plane has to wait, or another one's turn comes."""
        while choices := self.choices(plane):
            self.step(plane, choices[0] if len(choices) == 1 else self.random.choice(choices))
            if self.random.random() < 0.06:
                self.priorities[plane] = self.random.random()
                break

    def priority(self, actor: Any) -> float:
        if actor not in self.priorities:
            self.priorities[actor] = self.random.random()
        return self.priorities[actor]

    def report(self) -> str:
        waiting: dict[str, list[int]] = {}
        for cube in self.cubes:
            for lane in cube.lanes:
                if not lane.is_done:
                    name, site = lane.event[:2]
                    span = self.sites[site].span if isinstance(site, int) else site
                    waiting.setdefault(f"cube {cube.rank} {name} at {span}", []).append(lane.unit)
        return "\n".join(f"{text}: units {units}" for text, units in waiting.items())

    # What a plane can do

    def choices(self, plane: Plane) -> list[Lane]:
        """The units that can go on by themselves, or the first if all can go on together."""
        if plane.asleep is not None:
            return []
        there = [lane for lane in plane.lanes if not lane.is_done]
        alone = [x for x in there if x.event[0] not in TOGETHER and self.can_go_on(plane, x)]
        if alone or not there:
            return alone
        first = there[0].event
        if first[0] not in TOGETHER or any(lane.event[:2] != first[:2] for lane in there):
            return []
        if first[0] == "wgmma_wait":
            count = len(plane.groups) - 1 - integer(self.sites[first[1]], "count")
            return there[:1] if all(len(p.groups) - 1 >= count for p in plane.team) else []
        return there[:1]

    def can_go_on(self, plane: Plane, lane: Lane) -> bool:
        if lane.event[0] != "barrier_try_wait":
            return True
        _, _, place, parity = lane.event
        return plane.cube.barriers[place].phases % 2 != parity

    # What events do

    def step(self, plane: Plane, lane: Lane) -> None:
        name, site, *given = lane.event
        if name not in TOGETHER:
            lane.go_on(self.alone(plane.cube, lane, name, site, given))
        elif name in ("sync", "arrive", "sync_cube", "sync_units", "cluster_sync"):
            self.meet(plane, name, site, given)
        elif name == "plane":
            self.exchange(plane, site)
        else:
            self.together(plane, name, site)
            for one in plane.lanes:
                if not one.is_done:
                    one.go_on()

    def alone(self, cube: Cube, lane: Lane, name: str, site: int, given: list[Any]) -> Any:
        op = self.sites[site]
        if name == "barrier_init":
            cube.barriers[given[0]] = Barrier(given[1], given[1])
        elif name == "barrier_arrive":
            cube.barriers[given[0]].arrive(1, 0)
        elif name == "barrier_expect":
            cube.barriers[given[0]].arrive(1, given[1])
        elif name == "barrier_try_wait":
            return True
        elif name in ("tensor_load", "im2col_load", "tensor_multicast"):
            everyone = given[3] if name == "tensor_multicast" else 1 << cube.rank
            for other in self.cubes:
                if everyone >> other.rank & 1:
                    self.load(other, given[0], given[1], given[2])
        elif name == "bulk_load":
            self.load(cube, given[0], given[1], given[2])
        elif name in ("tensor_store", "tensor_reduce"):
            self.leave(cube, lane, given[1], given[1] + given[0])
        elif name == "bulk_commit":
            lane.leaving.append([])
        elif name == "bulk_wait":
            kept = integer(self.sites[site], "count") + 1
            lane.leaving = [[], *lane.leaving[-kept:]]
        elif name == "fence_async":
            lane.stored.clear()
        elif name == "load":
            self.read(cube, given[0], given[0] + size_of(op.result))
            return cube.values.get(given[0], 0)
        elif name == "store":
            self.write(cube, lane, given[0], size_of(op.operands[2]))
            if len(given) > 1:
                cube.values[given[0]] = given[1]
        else:
            return self.remote(name, given)
        return None

    def remote(self, name: str, given: list[Any]) -> Any:
        """Accesses to the memory of other cubes."""
        others = self.cubes if name == "peers" else [self.cubes[given[1]]]
        if any(other.is_done for other in others):
            raise Overlap(f"{name} of a cube that has ended")
        if name == "cluster_arrive":
            others[0].barriers[given[0]].arrive(1, 0)
        return 0

    def together(self, plane: Plane, name: str, site: int) -> None:
        if name == "wgmma":
            for descriptor in plane.lanes[0].event[2:]:
                atom = ATOMS[descriptor >> 62]
                begin = ((descriptor & 0x3FFF) << 4) // atom * atom
                self.read(plane.cube, begin, begin + atom)
                self.need_fence(plane.cube, begin, begin + atom)
                plane.groups[-1].append((begin, begin + atom))
        elif name == "wgmma_commit":
            plane.groups.append([])
        elif name == "wgmma_wait":
            done = len(plane.groups) - 1 - integer(self.sites[site], "count")
            for other in plane.team:
                other.retired = max(other.retired, done)
        elif name in ("ldmatrix", "stmatrix"):
            for lane in plane.lanes:
                if name == "ldmatrix":
                    self.read(plane.cube, lane.event[2], lane.event[2] + 16)
                else:
                    self.write(plane.cube, lane, lane.event[2], 16)

    def exchange(self, plane: Plane, name: str) -> None:
        """Operations over a plane whose results matter."""
        given = [lane.event[2] for lane in plane.lanes]
        for k, lane in enumerate(plane.lanes):
            if name == "plane_shuffle":
                lane.go_on(given[min(lane.event[3], len(given) - 1)])
            else:
                assert name in ("plane_sum", "plane_inclusive_sum") and len(given) == 32, name
                lane.go_on(sum(given) if name == "plane_sum" else sum(given[: k + 1]))

    def meet(self, plane: Plane, name: str, site: int, given: list[Any]) -> None:
        """Arrive at a barrier of the hardware, and wait there but for `arrive`."""
        cube = plane.cube
        if name == "cluster_sync":
            barrier, wanted = self.everyone, 32 * sum(len(c.planes) for c in self.cubes)
        elif name == "sync_cube":
            barrier, wanted = cube.named.setdefault(0, [0]), 32 * len(cube.planes)
        elif name == "sync_units":
            number, wanted = (integer(self.sites[site], x) for x in ("barrier", "count"))
            barrier = cube.named.setdefault(number, [0])
        else:
            found = NAMED.fullmatch(str(self.sites[site].attrs["template"]))
            assert found is not None
            barrier, wanted = cube.named.setdefault(given[0], [0]), int(found[2])
        barrier[0] += 32
        plane.asleep = None if name == "arrive" else barrier
        awake = [plane] if name == "arrive" else []
        if barrier[0] == wanted:
            barrier[0] = 0
            awake += [p for c in self.cubes for p in c.planes if p.asleep is barrier]
        for one in awake:
            one.asleep = None
            for lane in one.lanes:
                lane.go_on()

    # Memory

    def load(self, cube: Cube, begin: int, nbytes: int, barrier: int) -> None:
        end = begin + nbytes
        if cube.is_done:
            raise Overlap("a copy to a cube that has ended")
        self.free(cube, begin, end, "a copy")
        self.need_fence(cube, begin, end)
        cube.loads.append(Load(cube, begin, end, barrier))

    def free(self, cube: Cube, begin: int, end: int, what: str) -> None:
        """Whether nothing reads or writes some bytes by itself."""
        if any(x.begin < end and begin < x.end for x in cube.loads):
            raise Overlap(f"{what} writes {begin} to {end}, as another copy does")
        for plane in cube.planes:
            reads = (pair for group in plane.groups[plane.retired :] for pair in group)
            if any(x < end and begin < y for x, y in reads):
                raise Overlap(f"{what} writes {begin} to {end}, which products read")
            for lane in plane.lanes:
                if any(x < end and begin < y for group in lane.leaving for x, y in group):
                    raise Overlap(f"{what} writes {begin} to {end}, which leaves")

    def read(self, cube: Cube, begin: int, end: int) -> None:
        if any(x.begin < end and begin < x.end for x in cube.loads):
            raise Overlap(f"{begin} is read while it is copied to")

    def write(self, cube: Cube, lane: Lane, begin: int, nbytes: int) -> None:
        end = begin + nbytes
        self.free(cube, begin, end, f"unit {lane.unit}")
        lane.stored.append((begin, end))

    def need_fence(self, cube: Cube, begin: int, end: int) -> None:
        for lane in cube.lanes:
            if any(x < end and begin < y for x, y in lane.stored):
                raise Overlap(f"{begin} to {end} has stores of unit {lane.unit} without a fence")

    def leave(self, cube: Cube, lane: Lane, begin: int, end: int) -> None:
        self.need_fence(cube, begin, end)
        if any(x.begin < end and begin < x.end for x in cube.loads):
            raise Overlap(f"{begin} leaves while it is copied to")
        lane.leaving[-1].append((begin, end))
