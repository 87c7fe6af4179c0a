"""`cp.cuda` in the compiler: machine code where an architecture has it, refusals where not."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from cubepy.compilers.registry import find_compiler
from cubepy.ir import cuda
from cubepy.ir.parser import parse_kernel
from cubepy.ir.printer import print_kernel
from cubepy.lang import cuda as lang
from cubepy.lang.annotations import resolve_annotations
from cubepy.options import Options
from cubepy.targets import INTERPRETER, cpu_target, parse_target
from tests.devices.cuda_kernels import CASES, Case
from tests.optional import require_package

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100a")
HOPPER_ONLY = {"pipeline", *(name for name in CASES if name.startswith("wgmma"))}
"""Kernels whose instructions no later architecture has."""
FOREIGN = ("opencl", "opencl:fp16+subgroups", "metal", "hip:gfx942")


def text_of(case: Case, target: str, stage: str = "source") -> str:
    return case.launcher.inspect(*case.specs, target=target, stage=stage, comptime=case.comptime)


def number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


def has(name: str, arch: str) -> bool:
    if name in HOPPER_ONLY:
        return arch == "sm_90a"
    if name == "registers":
        return arch in ("sm_90a", "sm_100a")
    return number(arch) >= number(CASES[name].least)


def needs_nvrtc() -> None:
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", CASES)
def test_machine_code_where_the_architecture_has_it(name: str, arch: str):
    case, target = CASES[name], f"cuda:{arch}"
    if not has(name, arch):
        with pytest.raises(
            cp.UnsupportedError, match=rf"E310: `[\w.]*cuda[._]\w+`.*{target}: it needs sm_"
        ):
            text_of(case, target)
        return
    needs_nvrtc()
    assert toolchain.to_cubin(text_of(case, target), parse_target(target))[:4] == b"\x7fELF"
    assert bytes([32]) != bytes([0])  # the bindings write to what is given for an empty log


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mma_f16", "HMMA.16816.F32 LDSM LDGSTS"),
        ("mma_bf16", "HMMA.16816.F32.BF16"),
        ("mma_tf32", "HMMA.1688.F32.TF32"),
        ("mma_i8", "IMMA.16832.S8.S8"),
        ("stmatrix", "STSM"),
        ("bulk", "UBLKCP.S.G UBLKCP.G.S SYNCS"),
        ("tensor", "UTMALDG.2D UTMASTG.2D"),
        ("tensor_5d", "UTMALDG.5D"),
        ("im2col", "UTMALDG.4D.IM2COL"),
        ("im2col_5d", "UTMALDG.5D.IM2COL"),
        ("im2col_multicast", "UTMALDG.4D.IM2COL.MULTICAST"),
        ("cluster", "UCGABAR_ARV"),
        ("wgmma_f16", "HGMMA.64x64x16.F32"),
        ("wgmma_bf16", "HGMMA.64x128x16.F32.BF16"),
        ("multicast", "UTMALDG.1D.MULTICAST"),
        ("registers", "USETMAXREG"),
        ("reduce", "UTMAREDG.2D.ADD"),
    ],
)
def test_instructions_of_the_machine(name: str, words: str):
    needs_nvrtc()
    if toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvdisasm")
    text = text_of(CASES[name], "cuda:sm_90a", "sass")
    assert [word for word in words.split() if word not in text] == []


@pytest.mark.parametrize("name", ["wgmma_tma", "pipeline"])
def test_products_of_tiles_wait_once(name: str):
    """ptxas puts waits between products whose sums it must move: here it moves none."""
    needs_nvrtc()
    if toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvdisasm")
    text = text_of(CASES[name], "cuda:sm_90a", "sass")
    assert text.count("HGMMA.64x64x16") == 4
    assert text.count("WARPGROUP.DEPBAR") == 1


def test_every_instruction_is_used_by_a_kernel():
    used = {row.name for row in cuda.ROWS if any(row.name in ir for ir in ALL_IR)}
    assert used == {row.name for row in cuda.ROWS}


ALL_IR = [text_of(case, "cuda:sm_90a", "ir") for case in CASES.values()]


def test_every_row_has_a_name():
    other_names = {"cuda_set_registers", "cuda_tensor_multicast", "cuda_ptx_update"}
    other_names |= {"cuda_im2col_load", "cuda_im2col_multicast"}
    other_names |= {"cuda_mma_f64", "cuda_mma_f64_square"}
    names = {f"cuda_{name}" for name in lang.NAMES}
    names -= {"cuda_increase_registers", "cuda_decrease_registers"}
    assert {row.name for row in cuda.ROWS} - other_names == names


@pytest.mark.parametrize("target", FOREIGN)
@pytest.mark.parametrize("name", CASES)
def test_other_kinds_of_targets_refuse_by_name(name: str, target: str):
    reason = "it is of the hardware of cuda targets"
    with pytest.raises(cp.UnsupportedError, match=rf"E310: `[\w.]*cuda[._]\w+`.*{reason}"):
        text_of(CASES[name], target)


@pytest.mark.parametrize("target", [cpu_target("x86-64-v3"), INTERPRETER], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_processors_refuse_by_name(name: str, target: Any):
    kernel = parse_kernel(text_of(CASES[name], "cuda:sm_90a", "ir"))
    with pytest.raises(cp.UnsupportedError, match=rf"E310: `[\w.]*cuda[._]\w+`.*{target}"):
        find_compiler(target.kind).build(kernel, target, Options())


@cp.cube
def plain(x: cp.Tensor[cp.i32]):
    x[0] = 1


@cp.cube
def takes_map(tensor: cp.cuda.TensorMap, x: cp.Tensor[cp.i32]):
    x[0] = tensor.nbytes


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "interpreter"])
def test_clusters_need_hardware_that_has_them(target: str):
    with pytest.raises(cp.UnsupportedError, match="E310: a cluster of cubes"):
        plain.configure(cluster=2)[2, 32].inspect("i32[4]", target=target, stage="source")


@pytest.mark.parametrize("target", ["opencl", "interpreter"])
def test_tensor_maps_need_hardware_that_has_them(target: str):
    tensor = cp.cuda.tensor_map("i32[8,8]", (4, 4))
    with pytest.raises(cp.UnsupportedError, match="E310: `tensor`, a tensor map"):
        takes_map[1, 1].inspect(tensor, "i32[1]", target=target, stage="source")


@pytest.mark.parametrize("name", CASES)
def test_kernels_print_and_parse_back(name: str):
    text = text_of(CASES[name], "cuda:sm_90a", "ir")
    kernel = parse_kernel(text)
    assert print_kernel(kernel) == text
    cluster = (2, 1, 1) if name in ("cluster", "multicast", "im2col_multicast") else None
    assert kernel.attribute("cluster", None) == cluster
    changed = replace(kernel, attributes=(("cluster", (1, 2, 4)), ("registers", 64)))
    assert parse_kernel(print_kernel(changed)).attributes == changed.attributes


def test_shared_arrays_of_the_copy_engine_are_aligned():
    text = text_of(CASES["wgmma_tma"], "cuda:sm_90a")
    assert re.findall(r"__align__\((\d+)\) half", text) == ["1024", "1024"]
    assert "__align__(16) unsigned long long barrier[1]" in text


def test_large_shared_arrays_keep_their_alignment():
    @cp.cube
    def large(x: cp.cuda.TensorMap, out: cp.Tensor[cp.f32]):
        front = cp.shared(5, cp.f32)
        tile = cp.shared((256, 64), cp.f32)
        barrier = cp.shared(1, cp.u64)
        front[0] = 1.0
        cp.cuda.tensor_load(tile, (0, 0), x, (0, 0), barrier, 0)
        out[0] = tile[0, 0] + front[0]

    tensor = cp.cuda.tensor_map("f32[256,64]", (256, 64))
    text = large[1, 32].inspect(tensor, "f32[1]", target="cuda:sm_90a")
    assert "__align__(1024) unsigned char shared_memory[]" in text
    assert [int(n) for n in re.findall(r"shared_memory \+ (\d+)", text)] == [0, 1024, 66560]


def wrong(body: Any, *specs: Any) -> str:
    with pytest.raises(cp.CompileError) as raised:
        cp.cube(body)[1, 32].inspect(*specs, target="cuda:sm_90a")
    return str(raised.value)


def test_arguments_that_an_instruction_does_not_take():
    def three_bytes(x: cp.Tensor[cp.u8]):
        cp.cuda.async_copy(cp.shared(16, cp.u8), 0, x, 0, 3)

    def not_shared(x: cp.Tensor[cp.u64]):
        cp.cuda.barrier_arrive(x, 0)

    def no_such_register(x: cp.Tensor[cp.u64]):
        cp.cuda.ptx("mov.u32 %0, %3;", 1, result=cp.u32)

    def no_such_product(x: cp.Tensor[cp.u64]):
        a = cp.Line[cp.u32, 4](0)
        cp.cuda.mma(a, a, cp.Line[cp.f32, 4](0.0), cp.f16)

    def odd_count(x: cp.Tensor[cp.u64]):
        cp.cuda.increase_registers(100)

    def no_barrier(x: cp.Tensor[cp.u64]):
        cp.cuda.barrier_init(cp.shared(1, cp.u32), 0, 1)

    def half_an_arrival(x: cp.Tensor[cp.u64]):
        cp.cuda.barrier_init(cp.shared(1, cp.u64), 0, 0.5)

    def no_count(x: cp.Tensor[cp.u64]):
        cp.cuda.barrier_init(cp.shared(1, cp.u64), 0, -1)

    def turned_bytes(x: cp.Tensor[cp.u64]):
        d = cp.u64(0)
        cp.cuda.wgmma(cp.Line[cp.f32, 4](0.0), d, d, cp.f8e4m3, b_transposed=True)

    def mixed_halves(x: cp.Tensor[cp.u64]):
        d = cp.u64(0)
        cp.cuda.wgmma(cp.Line[cp.f32, 4](0.0), d, d, (cp.f16, cp.bf16))

    def wide(x: cp.Tensor[cp.u64]):
        d = cp.u64(0)
        cp.cuda.wgmma(cp.Line[cp.f32, 132](0.0), d, d, cp.f16)

    def integers_in_floats(x: cp.Tensor[cp.u64]):
        d = cp.u64(0)
        cp.cuda.wgmma(cp.Line[cp.f32, 4](0.0), d, d, cp.i8)

    def forty_columns_of_integers(x: cp.Tensor[cp.u64]):
        d = cp.u64(0)
        cp.cuda.wgmma(cp.Line[cp.i32, 20](0), d, d, cp.i8)

    assert "K-major alone" in wrong(turned_bytes, "u64[1]")
    assert "no product of f16 and bf16" in wrong(mixed_halves, "u64[1]")
    assert "not 264" in wrong(wide, "u64[1]")
    assert "a line of i32" in wrong(integers_in_floats, "u64[1]")
    assert "multiple of 16 columns" in wrong(forty_columns_of_integers, "u64[1]")
    assert "E207" in (text := wrong(half_an_arrival, "u64[1]")) and "an integer" in text
    assert "E203" in wrong(no_count, "u64[1]")
    assert "E201" in (text := wrong(three_bytes, "u8[16]")) and "4, 8 or 16 bytes" in text
    assert "E207" in (text := wrong(not_shared, "u64[1]")) and "shared memory" in text
    assert "E201" in (text := wrong(no_such_register, "u64[1]")) and "has 2 registers" in text
    assert "E201" in (text := wrong(no_such_product, "u64[1]")) and "no product of f16" in text
    assert "E201" in (text := wrong(odd_count, "u64[1]")) and "multiple of 8" in text
    assert "E201" in (text := wrong(no_barrier, "u64[1]")) and "takes a barrier" in text


def test_products_of_f64_that_are_not_there():
    def of_another_shape(x: cp.Tensor[cp.u64]):
        a = cp.Line[cp.f64, 4](0.0)
        cp.cuda.mma(a, a, a, cp.f64)

    def in_two_sums(x: cp.Tensor[cp.u64]):
        a = cp.Line[cp.f64, 4](0.0)
        cp.cuda.mma(a, a[:2], a[:2], cp.f64)

    def of_words(x: cp.Tensor[cp.u64]):
        a = cp.Line[cp.u32, 4](0)
        cp.cuda.mma(a, a[:2], cp.Line[cp.f64, 4](0.0), cp.f64)

    for kernel in (of_another_shape, in_two_sums, of_words):
        assert "E201" in (text := wrong(kernel, "u64[1]")) and "no product" in text


def test_matrices_that_cannot_be_loaded():
    def transposed_words(x: cp.Tensor[cp.u64]):
        cp.cuda.ldmatrix(cp.shared((8, 4), cp.f32), (0, 0), transposed=True)

    def wide_rows(x: cp.Tensor[cp.u64]):
        cp.cuda.ldmatrix(cp.shared((8, 2), cp.u64), (0, 0))

    assert "E201" in (text := wrong(transposed_words, "u64[1]")) and "1 or 2 bytes" in text
    assert "E201" in (text := wrong(wide_rows, "u64[1]")) and "1, 2 or 4 bytes" in text


def test_meetings_of_a_cluster_may_not_diverge():
    def diverging(x: cp.Tensor[cp.u64]):
        if cp.UNIT_POS < 3:
            cp.cuda.cluster_sync()

    assert "E307" in wrong(diverging, "u64[1]")


def test_matrices_of_a_plane_may_not_diverge():
    def diverging(x: cp.Tensor[cp.f32]):
        if cp.UNIT_POS < 3:
            c = cp.Line[cp.f32, 4](0.0)
            x[0] = cp.cuda.mma(cp.Line[cp.u32, 4](0), cp.Line[cp.u32, 2](0), c, cp.f16)[0]

    assert "E307" in wrong(diverging, "f32[1]")


def test_checked_kernels_test_both_ends_of_a_copy():
    def copies(x: cp.Tensor[cp.f32], n: int):
        cp.cuda.async_copy(cp.shared(64, cp.f32), 0, x, n, 4)

    kernel = cp.cube(copies).configure(checked=True)
    ir = kernel[1, 32].inspect("f32[64]", "i64", target="cuda:sm_80", stage="ir")
    assert ir.count("kind = 'bounds'") == 2


def test_text_of_inline_ptx_cannot_leave_its_literal():
    @cp.cube
    def quoted(out: cp.Tensor[cp.u32]):
        out[0] = cp.cuda.ptx('mov.u32 %0, 1; // "quoted" \\ ??/\n', result=cp.u32)

    needs_nvrtc()
    text = quoted[1, 1].inspect("u32[1]", target="cuda:sm_80")
    assert toolchain.to_cubin(text, parse_target("cuda:sm_80"))


@pytest.mark.parametrize(
    ("array", "box", "swizzle", "reason"),
    [
        ("f32[64,64]", (64,), 0, "a box of 1 axes for an array of 2"),
        ("f32[64,64]", (512, 4), 0, "from 1 to 256"),
        ("f32[64,64]", (4, 0), 0, "from 1 to 256"),
        ("f32[64,64]", (4, 4), 48, "a swizzle of 48"),
        (3, (4,), 0, "not of a int"),
        (np.zeros(4, "M8[s]"), (4,), 0, "an array of datetime64"),
    ],
)
def test_tensor_maps_that_cannot_be(array: Any, box: Any, swizzle: int, reason: str):
    with pytest.raises(cp.LaunchError, match=f"E421.*{reason}"):
        cp.cuda.tensor_map(array, box, swizzle)


@pytest.mark.parametrize(
    ("array", "changed", "reason"),
    [
        ("f16[2,8,8,64]", {"pixels": 1025}, "1 to 1024 pixels"),
        ("f16[2,8,8,64]", {"channels": 512}, "1 to 256 channels"),
        ("f16[2,8,8,64]", {"lower": (-129, 0)}, "not within 128 of 0"),
        ("f16[2,8,8,64]", {"upper": (0, 128)}, "not within 128 of 0"),
        ("f16[2,8,8,64]", {"strides": (1, 9)}, "they are 1 to 8"),
        ("f16[2,8,8,64]", {"strides": (1,)}, "a stride for each of 1 to 3 axes"),
        ("f16[2,8,64]", {}, "a box of 4 axes for an array of 3"),
        ("f16[2,8]", {"lower": (), "upper": ()}, "each of 1 to 3 axes"),
    ],
)
def test_maps_of_pixels_that_cannot_be(array: str, changed: dict[str, Any], reason: str):
    options = {"pixels": 64, "channels": 64, "lower": (-1, -1), "upper": (-1, -1)} | changed
    with pytest.raises(cp.LaunchError, match=f"E421.*{reason}"):
        cp.cuda.tensor_map_im2col(array, **options)


def window_without_offsets(x: cp.cuda.TensorMap):
    tile, barrier = cp.shared(x.box, x.dtype), cp.shared(1, cp.u64)
    cp.cuda.tensor_load(tile, (0, 0), x, (0, 0, 0, 0), barrier, 0)


def box_with_offsets(x: cp.cuda.TensorMap):
    tile, barrier = cp.shared(x.box, x.dtype), cp.shared(1, cp.u64)
    cp.cuda.tensor_load(tile, (0, 0), x, (0, 0), barrier, 0, offsets=(0,))


def test_offsets_belong_to_maps_of_pixels():
    pixels = cp.cuda.tensor_map_im2col("f16[2,8,8,64]", 64, 64, (-1, -1), (-1, -1))
    assert "offsets of 2 coordinates" in wrong(window_without_offsets, pixels)
    box = cp.cuda.tensor_map("f16[64,64]", (64, 64))
    assert "a map of cp.cuda.tensor_map_im2col" in wrong(box_with_offsets, box)


def store_of_a_window(x: cp.cuda.TensorMap):
    cp.cuda.tensor_store(x, (0, 0, 0, 0), cp.shared(x.box, x.dtype), (0, 0))


def test_windows_are_not_stored():
    pixels = cp.cuda.tensor_map_im2col("f16[2,8,8,64]", 64, 64, (-1, -1), (-1, -1))
    assert "expects a map of cp.cuda.tensor_map, got" in wrong(store_of_a_window, pixels)


def test_annotations_name_tensor_maps():
    assert resolve_annotations(takes_map.function)["tensor"] is cp.cuda.TensorMap
    with pytest.raises(cp.LaunchError, match=r"(?s)E401.*tensor_map"):
        takes_map[1, 1].inspect("i32[8,8]", "i32[1]", target="cuda:sm_90a")


@pytest.mark.parametrize("cluster", [0, 9, (2, 2, 4), "2", (1, 1, 1, 1)])
def test_clusters_that_cannot_be(cluster: Any):
    with pytest.raises(cp.LaunchError, match="E416"):
        plain.configure(cluster=cluster)


@cp.cube
def streams(x: cp.Tensor, out: cp.Tensor):
    i = 4 * cp.ABSOLUTE_POS
    cp.store(out, i, cp.load(x, i, line=4, fill=None, hint="stream"), hint="stream", whole=True)
    out[i] = cp.load(x, i, hint="stream")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "bool"])
def test_what_is_streamed_goes_past_the_caches(dtype: str):
    given = streams[1, 32], (f"{dtype}[128]", f"{dtype}[128]")
    text = given[0].inspect(*given[1], target="cuda:sm_80")
    assert (text.count("__ldcs("), text.count("__stcs(")) == (2, 1)
    assert "__ldcs" not in given[0].inspect(*given[1], target="hip:gfx942")


def test_registers_and_cubes_are_hints():
    """The compilers of GPUs take them, other targets ignore them, and nonsense is refused."""
    asked = plain.configure(registers=64, cubes_per_sm=4)
    text = asked[2, 32].inspect("i32[4]", target="cuda:sm_80", stage="source")
    assert "__launch_bounds__(32, 4)" in text
    assert "__launch_bounds__(32, 1)" in asked[2, 32].inspect("i32[4]", target="hip:gfx942")
    plain_text = plain[2, 32].inspect("i32[4]", target="opencl")
    assert asked[2, 32].inspect("i32[4]", target="opencl") == plain_text
    x = np.zeros(4, np.int32)
    asked[1, 4](x)
    for wrong in ({"registers": 8}, {"registers": 300}, {"cubes_per_sm": 0}, {"registers": "64"}):
        with pytest.raises(cp.LaunchError, match="E420"):
            plain.configure(**wrong)


@cp.cube
def keeps_many(x: cp.Tensor[cp.f32]):
    """A hundred sums, each of which needs the others."""
    i, tile = cp.UNIT_POS, cp.shared(64, cp.f32)
    sums = cp.local(100, cp.f32)
    for k in cp.unroll(range(100)):
        sums[k] = x[100 * i + k]
    for _ in range(x.shape[0]):
        for k in cp.unroll(range(100)):
            sums[k] = sums[k] * sums[(7 * k + 3) % 100] + 1.0
    tile[i] = sums[0]
    cp.sync_cube()
    for k in cp.unroll(range(100)):
        x[100 * i + k] = sums[k] + tile[63 - i]


def test_resources_without_a_gpu():
    needs_nvrtc()
    asked = {"target": "cuda:sm_90a", "stage": "resources"}
    text = keeps_many[1, 64].inspect("f32[6400]", **asked)
    registers = int(text.split()[1])
    assert registers > 100
    assert re.findall(r"spills +0 bytes stored, 0 bytes loaded\n", text)
    assert re.findall(r"shared memory +256 bytes", text)
    few = keeps_many.configure(registers=64)[1, 64].inspect("f32[6400]", **asked)
    assert few.startswith("registers      64 ")
    assert int(re.findall(r"spills +(\d+)", few)[0]) > 0
    many = keeps_many.configure(cubes_per_sm=16)[1, 64].inspect("f32[6400]", **asked)
    assert int(many.split()[1]) <= 64


def test_dynamic_shared_memory_counts():
    needs_nvrtc()

    @cp.cube
    def large(x: cp.Tensor[cp.f32]):
        tile = cp.shared(20000, cp.f32)
        tile[cp.UNIT_POS] = x[0]
        cp.sync_cube()
        x[1] = tile[31 - cp.UNIT_POS]

    text = large[1, 32].inspect("f32[4]", target="cuda:sm_80", stage="resources")
    assert "shared memory  80000 bytes" in text


@cp.cube
def serialised(out: cp.Tensor[cp.f32], d: cp.u64, steps: cp.i32):
    """Sums that a loop carries, though their products may be under way."""
    sums = cp.Line[cp.f32, 4](0.0)
    cp.cuda.wgmma_fence()
    for k in range(steps):
        sums = cp.cuda.wgmma(sums, d + cp.u64(k), d, cp.f16)
    cp.cuda.wgmma_commit()
    out[cp.UNIT_POS] = cp.cuda.wgmma_wait(sums)[0]


def test_serialised_products_are_warned_of():
    needs_nvrtc()
    text = serialised[1, 128].inspect(
        "f32[128]", "u64", "i32", target="cuda:sm_90a", stage="resources"
    )
    assert re.search(r"ptxas: \(C75\d\d\).*serialized", text)
    source = serialised[1, 128].inspect("f32[128]", "u64", "i32", target="cuda:sm_90a")
    with warnings.catch_warnings(record=True) as caught:  # some versions of ptxas warn twice
        warnings.simplefilter("always")
        toolchain.to_cubin(source, parse_target("cuda:sm_90a"))
    assert {warning.category for warning in caught} == {RuntimeWarning}
    texts = [str(warning.message) for warning in caught]
    assert any(re.search("ptxas loses performance.*serialized", text) for text in texts)


@cp.cube
def meets_in_halves(x):
    if cp.UNIT_POS // 32 < 2:
        cp.sync_units(1, 64)
    else:
        cp.sync_units(15, 64)
    x[cp.UNIT_POS] = 1


@cp.cube
def five_units(x):
    if cp.UNIT_POS < 5:
        cp.sync_units(1, 5)
    x[cp.UNIT_POS] = 1


@cp.cube
def all_units(x):
    cp.sync_units(1, 64)
    x[cp.UNIT_POS] = 1


def test_named_barriers_count_warps():
    """Of planes of another size only barriers of the whole cube are left."""
    asked = five_units.configure(plane_dim=1)[1, 64]
    with pytest.raises(cp.UnsupportedError, match="E310.*planes of 32 units"):
        asked.inspect("f32[64]", target="cuda:sm_80")
    text = all_units.configure(plane_dim=1)[1, 64].inspect("f32[64]", target="cuda:sm_80")
    assert "__syncthreads" in text and "barrier.sync" not in text


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_named_barriers_on_every_architecture(arch: str):
    needs_nvrtc()
    text = meets_in_halves[1, 128].inspect("f32[128]", target=f"cuda:{arch}", stage="ptx")
    assert re.search(r"bar(rier)?\.sync(\.aligned)?\s+1, 64;", text)
    assert re.search(r"bar(rier)?\.sync(\.aligned)?\s+15, 64;", text)


@cp.cube
def packs_pairs(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.u32]):
    i = cp.ABSOLUTE_POS
    four = cp.Line[cp.f32, 4](x[i], x[i + 32], x[i + 64], x[i + 96])
    words = cp.bitcast(cp.bf16(four), cp.u32)
    out[i] = words[0]
    out[i + 32] = words[1]


def test_pairs_of_small_floats_are_packed_by_one_instruction():
    needs_nvrtc()
    if toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvdisasm")
    text = packs_pairs[1, 32].inspect("f32[128]", "u32[64]", target="cuda:sm_90a", stage="sass")
    assert text.count("F2FP.BF16.F32.PACK_AB") == 2
    assert "PRMT" not in text


@cp.cube
def splats_words(x: cp.Tensor[cp.f16], y: cp.Tensor[cp.bf16], out: cp.Tensor[cp.u16]):
    for n in cp.unroll((2, 4)):
        halves = cp.bitcast(cp.Line[cp.f16, n](x[0]), cp.u16)
        brains = cp.bitcast(cp.Line[cp.bf16, n](y[0]), cp.u16)
        cp.store(out, n, cp.Line[cp.u16, n](out[0]) + halves + brains)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_lines_of_types_that_are_words(arch: str):
    needs_nvrtc()
    text = splats_words[1, 1].inspect("f16[1]", "bf16[1]", "u16[8]", target=f"cuda:{arch}")
    assert toolchain.to_cubin(text, parse_target(f"cuda:{arch}"))
