"""How a CUDA launch finds its parameters; no driver is asked."""

from __future__ import annotations

import ctypes

from cubepy.artifact import Artifact, Data, Fault, Scalar, Slot, TensorMapOf
from cubepy.runtimes.cuda.code import Code
from cubepy.runtimes.cuda.tensor_maps import EncodedMap
from cubepy.targets import cuda_target

SLOTS = (
    Slot("x", Data(), ""),
    Slot("tile", TensorMapOf(), ""),
    Slot("n", Scalar(), "i32"),
)


def pointers(faults: tuple[Fault, ...], block: object) -> list[int]:
    artifact = Artifact(cuda_target("sm_90a"), "k", b"", SLOTS, (1, 1, 1), faults)
    return list(Code(artifact).parameters(block))


def test_tensor_maps_are_passed_by_value():
    encoded = EncodedMap(list(range(100, 116)))
    assert encoded.address % 64 == 0
    held = (ctypes.c_uint64 * 16).from_address(encoded.address)
    assert list(held) == list(range(100, 116))
    block = (ctypes.c_uint64 * 6)(7, encoded.address, 9, 1, 1, 1)
    start = ctypes.addressof(block)
    assert pointers((), block) == [start, encoded.address, start + 16]


def test_the_fault_record_comes_behind_the_cube_counts():
    block = (ctypes.c_uint64 * 7)(7, 640, 9, 1, 1, 1, 13)
    start = ctypes.addressof(block)
    faults = (Fault("bounds", "x", 0, None),)
    assert pointers(faults, block) == [start, 640, start + 16, start + 48]
