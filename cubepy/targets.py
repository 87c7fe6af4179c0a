"""Targets: what a kernel is compiled for, as plain data. Compilers and runtimes share it.

Nominal properties serve compiling without a device; a device fills in what it really has.
"""

from __future__ import annotations

import re
from dataclasses import replace

from cubepy.errors import fail
from cubepy.record import dataclass

PLANE_DIMS = (1, 2, 4, 8, 16, 32, 64)
"""The planes that a target can have or emulate; a ballot has 64 bits."""
CHECKED_LIMIT = 1 << 48
"""The longest axis and the most units of a checked launch, so that its index arithmetic can be
proved to stay in 64 bits; processors address no more bytes."""


@dataclass(frozen=True, slots=True)
class LaunchAttribute:
    """A setting of `configure` that code is compiled for, by its name in `LAUNCH_ATTRIBUTES`.

    `kinds`: the targets that have it. Others ignore it where it is a hint, and refuse it else.
    """

    what: str
    kinds: tuple[str, ...]
    is_hint: bool = False


LAUNCH_ATTRIBUTES = {
    "cluster": LaunchAttribute("a cluster of cubes", ("cuda",)),
    "registers": LaunchAttribute("a number of registers", ("cuda",), is_hint=True),
    "cubes_per_sm": LaunchAttribute("cubes per multiprocessor", ("cuda", "hip"), is_hint=True),
}


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """One instruction that multiplies an m x k by a k x n matrix and adds the product to sums.

    `factor`: the type that it takes; `takes`: types of which it holds every value, and that are
    converted to it; `sums`: the type of the sums. `units`: how many units of a plane hold the
    matrices together, 1 for instructions of a processor. `layout`: which of them holds what, a name
    in `lang/tiles`. `op`: its row in the op table; `load`: the row that loads factors from shared
    memory as the layout has them, "" for none. `since`: the first version of the target with it.
    """

    m: int
    n: int
    k: int
    factor: str
    takes: tuple[str, ...]
    sums: str
    units: int
    layout: str
    op: str
    load: str = ""
    since: int = 0
    feature: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What code is compiled for.

    `line_bytes` is the widest useful line, `line_alignment` what a line access must be aligned to
    (0: to its element); sizes in bytes; `near_bytes` and `cache_bytes` are the nearest and the next
    cache for data that a core has, of a GPU the last one; `cores` share the cubes of a CPU,
    `multiprocessors` those of a GPU; `max_cube_dim` units of a cube in all, `max_cube_dims` and
    `max_cube_counts` along x, y and z;
    `functions` are elementary functions that the target has itself within the bounds of the op
    table, such as "exp_f32"; `attributes` is for the compiler of this kind alone. `family`,
    `version` and `variant` are what `arch` says: the instruction set of a CPU ("aarch64",
    "x86-64"), 90 and "a" of sm_90a. `narrows`: integers of 32 bits are faster than wider ones.
    """

    kind: str
    arch: str
    plane_dim: int = 1
    line_bytes: int = 16
    line_alignment: int = 0
    shared_bytes: int = 49152
    near_bytes: int = 32 << 10
    cache_bytes: int = 1 << 20
    cores: int = 1
    multiprocessors: int = 1
    max_cube_dim: int = 1024
    max_cube_dims: tuple[int, int, int] = (1 << 31, 1 << 31, 1 << 31)
    max_cube_counts: tuple[int, int, int] = (1 << 62, 1 << 62, 1 << 62)
    features: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    attributes: str = ""
    family: str = ""
    version: int = 0
    variant: str = ""
    narrows: bool = False

    @property
    def matrix_units(self) -> tuple[MatrixUnit, ...]:
        """What multiplies matrices here; the first row that takes a type serves it."""
        rows = _MATRIX_UNITS.get(self.kind, ())
        return tuple(
            [
                row
                for row in rows
                if self.version >= row.since and (not row.feature or row.feature in self.features)
            ]
        )

    @property
    def overlaps_launches(self) -> bool:
        """Whether kernels may begin while those before them in a stream end: compilers let them
        wait for these first, runtimes launch them so."""
        return self.kind == "cuda" and self.version >= _OVERLAPS_FROM

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind


_OVERLAPS_FROM = 90
_WIDE = (
    "x86-64-v4",
    "skylake-avx512",
    "cascadelake",
    "icelake",
    "sapphirerapids",
    "emeraldrapids",
    "graniterapids",
    "znver4",
    "znver5",
    "rocketlake",
    "tigerlake",
    "cannonlake",
    "cooperlake",
)
_NARROW = (
    "x86-64",
    "x86-64-v2",
    "nehalem",
    "westmere",
    "core2",
    "generic",
    "neoverse-n1",
    "apple-m1",
    "apple-m2",
    "apple-m3",
    "apple-m4",
    "cortex-a72",
    "cortex-a76",
)

_NAMES = """
x86-64 x86-64-v2 x86-64-v3 x86-64-v4 nocona core2 penryn nehalem westmere sandybridge
ivybridge haswell broadwell skylake skylake-avx512 cascadelake cooperlake cannonlake
icelake-client icelake-server rocketlake tigerlake alderlake raptorlake meteorlake arrowlake
arrowlake-s lunarlake pantherlake sapphirerapids emeraldrapids graniterapids graniterapids-d
diamondrapids sierraforest grandridge clearwaterforest atom silvermont goldmont goldmont-plus
tremont gracemont knl knm k8 amdfam10 barcelona btver1 btver2 bdver1 bdver2 bdver3 bdver4
znver1 znver2 znver3 znver4 znver5 generic a64fx ampere1 ampere1a ampere1b apple-a12 apple-a13
apple-a14 apple-a15 apple-a16 apple-a17 apple-a18 apple-m1 apple-m2 apple-m3 apple-m4 carmel
cobalt-100 cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a510 cortex-a520 cortex-a710
cortex-a715 cortex-a72 cortex-a720 cortex-a725 cortex-a73 cortex-a75 cortex-a76 cortex-a77
cortex-a78 cortex-x1 cortex-x2 cortex-x3 cortex-x4 cortex-x925 gb10 grace neoverse-512tvb
neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 thunderx
thunderx2t99 tsv110
"""
_KNOWN = frozenset(_NAMES.split())
"""64-bit CPUs by their LLVM names; LLVM ends the process that asks it for others."""

_ARM = (
    *("apple-", "neoverse", "cortex", "generic", "ampere", "a64fx", "thunderx", "carmel", "cobalt"),
    *("gb10", "grace", "tsv"),
)

_TILES = ("sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids")
"""CPUs with AMX."""
_DOTS = ("cascadelake", "cooperlake", "icelake", "tigerlake", "rocketlake", "znver4", "znver5")
"""Further CPUs with dot products of bytes in lines of 64 (AVX-512 VNNI)."""
_DOTS_OF_BF16 = ("cooperlake", "znver4", "znver5")
"""Those of them that multiply bf16 too."""
_DOT_FEATURES = frozenset(("avx512vnni", "avx512vl"))
_BF16_FEATURES = _DOT_FEATURES | frozenset(("avx512bf16",))
_TILE_FEATURES = _BF16_FEATURES | frozenset(("amx-tile", "amx-bf16", "amx-int8"))

_CPU = Target(
    "cpu", "", line_bytes=32, shared_bytes=1 << 20, cache_bytes=1 << 20, max_cube_dim=1 << 16
)


INTERPRETER = Target(
    "interpreter",
    "",
    shared_bytes=1 << 20,
    max_cube_dim=1 << 16,
    features=frozenset({"checks", "names"}),
)
"""Python. `checks`: kernels are always checked; `names`: kernels run as they are written,
unoptimised, with the user's names.
"""


def cpu_target(arch: str) -> Target:
    """A named CPU of LLVM, with nominal properties; E503 for an unknown one."""
    if arch not in _KNOWN:
        examples = "names are LLVM's, such as x86-64-v3, znver4, apple-m1"
        raise fail("E503", target=f"cpu:{arch}", suggestion=examples)
    wide = arch.startswith(_WIDE)
    family = "aarch64" if arch.startswith(_ARM) else "x86-64"
    line_bytes = 64 if wide else 16 if arch in _NARROW else 32
    features = _DOT_FEATURES if arch.startswith(_DOTS) else _CPU.features
    features = _BF16_FEATURES if arch.startswith(_DOTS_OF_BF16) else features
    features = _TILE_FEATURES if arch.startswith(_TILES) else features
    return replace(_CPU, arch=arch, line_bytes=line_bytes, family=family, features=features)


def host_target(
    arch: str, attributes: str, features: frozenset[str], caches: tuple[int, int], cores: int
) -> Target:
    """This machine's CPU; `attributes` is LLVM's feature string, `caches` the bytes of the nearest
    cache for data and of the next, 0 where that is not known."""
    wide = "avx512f" in features
    line_bytes = 64 if wide else 32 if "avx2" in features or "avx" in features else 16
    return replace(
        _CPU,
        arch=arch,
        line_bytes=line_bytes,
        features=features,
        family="x86-64" if "sse2" in features else "aarch64" if "neon" in features else "",
        attributes=attributes,
        near_bytes=caches[0] or _CPU.near_bytes,
        cache_bytes=caches[1] or _CPU.cache_bytes,
        cores=cores,
    )


_CUDA_FUNCTIONS = frozenset(
    f"{name}_{dtype}"
    for name in (
        *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow"),
        *("sin", "cos", "tanh", "erf", "erfc", "rsqrt", "cbrt"),
    )
    for dtype in ("f32", "f64")
)
_CUDA = Target(
    "cuda",
    "",
    plane_dim=32,
    line_alignment=16,
    cache_bytes=32 << 20,
    max_cube_dims=(1024, 1024, 64),
    max_cube_counts=(2**31 - 1, 65535, 65535),
    functions=_CUDA_FUNCTIONS | {"sigmoid_f32"},
    narrows=True,
)
_CUDA_SHARED = {
    75: 64 << 10,
    80: 163 << 10,
    87: 163 << 10,
    90: 227 << 10,
    100: 227 << 10,
    103: 227 << 10,
}
_CUDA_MULTIPROCESSORS = {75: 72, 80: 108, 90: 132, 100: 148, 103: 148}
_CUDA_KNOWN = (75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
_CUDA_END = 200
"""No architecture has such a number; what lies between the newest known one and this may come."""
_CUDA_PATTERN = r"sm_([1-9]\d*)([af]?)"  # compiled where it is used: most processes have one target
_CUDA_VARIANTS = {"": 0, "a": 90, "f": 100}
"""The first architecture that has each variant."""


def _named_cuda_target(arch: str) -> Target:
    """The target that a user names; E503 for an architecture that is too old or does not exist."""
    target = cuda_target(arch)
    may_come = _CUDA_KNOWN[-1] < target.version < _CUDA_END
    if target.version < _CUDA_KNOWN[0]:
        reason = "sm_75 is the oldest architecture that kernels are compiled for"
    elif target.version not in _CUDA_KNOWN and not may_come:
        reason = f"architectures: {', '.join(f'sm_{version}' for version in _CUDA_KNOWN)}"
    elif target.version < _CUDA_VARIANTS[target.variant]:
        reason = f"`{target.variant}` begins with sm_{_CUDA_VARIANTS[target.variant]}"
    else:
        return target
    raise fail("E503", target=f"cuda:{arch}", suggestion=reason)


def cuda_target(arch: str) -> Target:
    """An architecture of NVIDIA, such as sm_90a; shared memory is what one cube may have."""
    found = re.fullmatch(_CUDA_PATTERN, arch)
    if found is None:
        raise fail("E503", target=f"cuda:{arch}", suggestion="architectures: sm_75, sm_80, sm_90a")
    version = int(found[1])
    return replace(
        _CUDA,
        arch=arch,
        shared_bytes=_CUDA_SHARED.get(version, 99 << 10),
        multiprocessors=_CUDA_MULTIPROCESSORS.get(version, 84),
        version=version,
        variant=found[2],
    )


_OPENCL = Target("opencl", "", plane_dim=32, line_alignment=16, shared_bytes=32 << 10, narrows=True)
_OPENCL_USUAL = frozenset({"fp64", "int64_atomics"})
_OPENCL_FEATURES = _OPENCL_USUAL | {"fp16", "subgroups"}


def opencl_target(arch: str) -> Target:
    """A device with fp64, 64-bit atomics, and the features that `arch` names: `fp16+subgroups`.

    Without sub-groups a plane is one unit: an emulated one would need barriers of the whole cube.
    """
    asked = frozenset(arch.split("+")) - {""}
    if not asked <= _OPENCL_FEATURES:
        names = ", ".join(sorted(_OPENCL_FEATURES))
        raise fail("E503", target=f"opencl:{arch}", suggestion=f"features: {names}")
    plane_dim = _OPENCL.plane_dim if "subgroups" in asked else 1
    return replace(_OPENCL, arch=arch, plane_dim=plane_dim, features=_OPENCL_USUAL | asked)


_METAL = Target("metal", "", plane_dim=32, line_alignment=16, shared_bytes=32 << 10, narrows=True)


def metal_target(arch: str) -> Target:
    """Any GPU of Apple's that knows Metal 3; families differ in nothing that kernels see yet."""
    if arch:
        raise fail("E503", target=f"metal:{arch}", suggestion="write `metal`")
    return _METAL


_HIP = Target(
    "hip", "", line_alignment=16, shared_bytes=64 << 10, cache_bytes=8 << 20, narrows=True
)
_HIP_PATTERN = r"gfx(9\d\d|1[0-2]\d\d|90a|90c)"


def hip_target(arch: str) -> Target:
    """An architecture of AMD, such as gfx942: planes of 64 units up to gfx9, of 32 behind."""
    found = re.fullmatch(_HIP_PATTERN, arch)
    if found is None:
        raise fail("E503", target=f"hip:{arch}", suggestion="such as gfx90a and gfx942")
    plane_dim = 64 if found[1].startswith("9") else 32
    return replace(_HIP, arch=arch, plane_dim=plane_dim)


def _tensor_cores(k: int, factor: str, takes: tuple[str, ...], sums: str, load: str) -> MatrixUnit:
    return MatrixUnit(16, 8, k, factor, takes, sums, 32, "mma", "cuda_mma", load, since=80)


def _simdgroups(factor: str, takes: tuple[str, ...]) -> MatrixUnit:
    op = "metal_multiply_accumulate"
    return MatrixUnit(8, 8, 8, factor, takes, "f32", 32, "simdgroup", op)


def _amx(k: int, factor: str, sums: str, feature: str) -> MatrixUnit:
    return MatrixUnit(16, 16, k, factor, (factor,), sums, 1, "amx", "amx_multiply", feature=feature)


_MATRIX_UNITS: dict[str, tuple[MatrixUnit, ...]] = {
    "cuda": (
        _tensor_cores(16, "f16", ("f8e4m3", "f8e5m2", "f16"), "f32", "cuda_ldmatrix"),
        _tensor_cores(16, "bf16", ("bf16",), "f32", "cuda_ldmatrix"),
        _tensor_cores(32, "i8", ("i8",), "i32", ""),
        _tensor_cores(32, "u8", ("u8",), "i32", ""),
        MatrixUnit(16, 8, 8, "f64", ("f64",), "f64", 32, "mma", "cuda_mma_f64", since=90),
    ),
    "cpu": (
        _amx(32, "bf16", "f32", "amx-bf16"),
        _amx(64, "i8", "i32", "amx-int8"),
        _amx(64, "u8", "i32", "amx-int8"),
    ),
    "metal": (
        _simdgroups("f16", ("f8e4m3", "f8e5m2", "f16")),
        _simdgroups("f32", ("bf16", "f32")),
    ),
}
"""The matrix units of each kind of target."""

_NAMED = {
    "cpu": cpu_target,
    "cuda": _named_cuda_target,
    "opencl": opencl_target,
    "metal": metal_target,
    "hip": hip_target,
}
_UNNAMED = ("opencl", "metal")
"""Kinds that are a target without a name too."""


def parse_target(text: str) -> Target:
    """The target written as `kind:name`; `cpu` alone (this host) is the CPU device's matter.

    Raises `CompileError` E503 for unknown ones.
    """
    kind, _, arch = text.partition(":")
    if text == INTERPRETER.kind:
        return INTERPRETER
    if kind in _NAMED and (arch or kind in _UNNAMED):
        return _NAMED[kind](arch)
    raise fail("E503", target=text, suggestion="targets: cpu, cpu:x86-64-v3, cuda:sm_90a, ...")
