"""`inspect`: every stage for this host and for named CPUs; what the code for them looks like."""

from __future__ import annotations

import re
from typing import Any

import pytest

import cubepy as cp
from cubepy.jit.compile import Specialisations
from cubepy.runtimes.cpu.device import cpu_device

TARGETS = [
    "cpu",
    "cpu:x86-64-v2",
    "cpu:x86-64-v3",
    "cpu:x86-64-v4",
    "cpu:znver4",
    "cpu:neoverse-n1",
    "cpu:apple-m1",
]
X86 = [t for t in TARGETS if "x86" in t or "znver" in t]
STAGES = ["ir", "llvm", "asm"]


@cp.cube
def add(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + y.flat[i]


@cp.cube
def multiply_add(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * y.flat[i] + out.flat[i]


@cp.cube
def multiply_add_scalars(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * y.flat[i] + out.flat[i]


@cp.cube
def everything(x, n: int, scale: cp.f32, flags: cp.Comptime, out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = out.flat[i]
        for k in range(n):
            if x[k] % 3 == 1:
                continue
            v = cp.where(v > scale, cp.exp(-v), v * scale + cp.erf(v)) if flags else v
        out.flat[i] = v / (1 + cp.sqrt(abs(v)))


FLOATS = ("f32[4096]", "f32[4096]", "f32[4096]")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stage", STAGES)
def test_every_stage(target: str, stage: str):
    texts = [
        add.inspect(*FLOATS, target=target, stage=stage),
        multiply_add.over(4096).inspect(*FLOATS, target=target, stage=stage),
        everything.inspect(
            "i32[?]",
            "i64",
            "f32",
            out="f32[?,100]",
            comptime={"flags": (1, 2)},
            target=target,
            stage=stage,
        ),
    ]
    for text in texts:
        assert "test_inspect.py" in text, "the lines of Python stand beside"
        assert not re.search(r"!DI|\.debug_|!dbg", text)
    words = {"ir": "load", "llvm": "define", "asm": ":"}
    assert all(words[stage] in text for text in texts)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "u64", "bool_", "f8e4m3"])
@pytest.mark.parametrize("target", TARGETS)
def test_other_types(dtype: str, target: str):
    specs = [f"{dtype}[100]"] * 3
    kernel = add if dtype != "bool_" else cp.cube(lambda x, y, out: None)
    assert "define" in kernel.inspect(*specs, target=target)


def body(text: str) -> str:
    """The loops of a listing, without what is not code."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith((".", "#")))


@pytest.mark.parametrize(
    ("target", "register", "absent"),
    [
        ("cpu:x86-64-v4", "zmm", "\0"),
        ("cpu:znver4", "zmm", "\0"),
        ("cpu:x86-64-v3", "ymm", "zmm"),
        ("cpu:x86-64-v2", "xmm", "ymm"),
        ("cpu:neoverse-n1", r"v\d+\.4s", "zmm"),
        ("cpu:apple-m1", r"v\d+\.4s", "zmm"),
    ],
)
@pytest.mark.parametrize(
    "kernel", [add, multiply_add, multiply_add_scalars], ids=lambda k: k.__name__
)
def test_full_width_vectors(kernel: Any, target: str, register: str, absent: str):
    text = body(kernel.inspect(*FLOATS, target=target, stage="asm"))
    assert re.search(register, text) and absent not in text


@pytest.mark.skipif("avx512f" not in cpu_device().target.features, reason="no AVX-512 here")
@pytest.mark.parametrize(
    "kernel", [add, multiply_add, multiply_add_scalars], ids=lambda k: k.__name__
)
def test_this_host_uses_all_of_avx512(kernel: Any):
    assert "zmm" in kernel.inspect(*FLOATS, stage="asm")


FUSED = {
    "cpu:x86-64-v3": "vfmadd",
    "cpu:znver4": "vfmadd",
    "cpu:neoverse-n1": "fmla",
    "cpu:apple-m1": "fmla",
}


@pytest.mark.parametrize("target", FUSED)
@pytest.mark.parametrize("kernel", [multiply_add, multiply_add_scalars], ids=lambda k: k.__name__)
def test_contraction_shows(kernel: Any, target: str):
    fused = kernel.inspect(*FLOATS, target=target, stage="asm")
    apart = kernel.configure(contract=False).inspect(*FLOATS, target=target, stage="asm")
    assert FUSED[target] in fused and not re.search(r"\bv?mulps|fmul", fused)
    assert FUSED[target] not in apart and re.search(r"\bv?mulps|fmul", apart)
    assert "fma" in kernel.inspect(*FLOATS, stage="ir")
    assert "fma" not in kernel.configure(contract=False).inspect(*FLOATS, stage="ir")


def test_masked_tails():
    """Lines that are whole need no mask; others load and store under one."""
    whole = multiply_add.inspect(*FLOATS, target="cpu:x86-64-v4")
    assert "masked" not in whole
    tail = multiply_add.inspect(*["f32[4095]"] * 3, target="cpu:x86-64-v4")
    assert "llvm.masked.load" in tail and "llvm.masked.store" in tail
    assert "k1" in multiply_add.inspect(*["f32[4095]"] * 3, target="cpu:x86-64-v4", stage="asm")


def test_no_scalar_loop_is_left_for_whole_lines():
    text = body(multiply_add.inspect(*FLOATS, target="cpu:x86-64-v4", stage="asm"))
    assert "vfmadd213ss" not in text and "vfmadd231ss" not in text


def test_nothing_is_called():
    """Elementary functions are expanded: no library, no loop over lanes."""
    text = everything.inspect(
        "i32[?]",
        "i64",
        "f32",
        out="f32[?,128]",
        comptime={"flags": 1},
        target="cpu:x86-64-v4",
        stage="asm",
    )
    calls = [line for line in body(text).splitlines() if line.split()[:1] == ["callq"]]
    assert len(calls) == 1, "the wrapper calls the loops over cubes, and these call nothing"


def test_specs_and_arguments():
    import numpy as np

    x = np.zeros(4096, np.float32)
    assert "define" in add.over(x).inspect(x, x, out=x)
    assert add.inspect(*FLOATS, target="cpu:x86-64-v3") == add.inspect(
        *(cp.spec(s) for s in FLOATS), target="cpu:x86-64-v3"
    )
    unknown = add.inspect("f32[?]", "f32[?]", "f32[?]", target="cpu:x86-64-v3")
    assert "define" in unknown


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"target": "cuda:sm_80"}, None),
        ({"target": "gpu"}, "E503"),
        ({"target": "cpu:"}, "E503"),
        ({"target": "cpu:pentium9"}, "E503"),
        ({"stage": "ptx"}, "E502"),
        ({"stage": ""}, "E502"),
    ],
)
def test_wrong_targets_and_stages(options: Any, code: str | None):
    try:
        text = add.inspect(*FLOATS, **options)
    except cp.Error as error:
        assert code in (None, error.code), error
        assert len(str(error).splitlines()) <= 12
    else:
        assert code is None and text


@pytest.mark.parametrize(
    "text", ["f32[", "f33", "f32[4,]x", "f32[-1]", "f32[a]", "", "[4]", "f32[1.5]"]
)
def test_wrong_specs(text: str):
    with pytest.raises(cp.LaunchError, match="E415"):
        cp.spec(text)


def test_wrong_arguments():
    with pytest.raises(cp.LaunchError, match="E406"):
        add.inspect("f32[4]")
    with pytest.raises(cp.LaunchError, match="E402"):
        multiply_add.inspect("f64[4]", "f32[4]", "f32[4]")


def test_stages_of_a_signature_are_traced_once(monkeypatch: pytest.MonkeyPatch):
    traced: list[str] = []
    plain = Specialisations.trace

    def counting(self: Specialisations, signature: Any, target: Any) -> Any:
        traced.append(str(target))
        return plain(self, signature, target)

    monkeypatch.setattr(Specialisations, "trace", counting)
    scale = 2.0

    @cp.cube
    def scaled(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i] * scale

    texts = [scaled.inspect(*FLOATS[:2], stage=stage) for stage in ("ir", "llvm", "ir")]
    assert len(traced) == 1 and texts[0] == texts[2]
    scale = 3.0
    assert scaled.inspect(*FLOATS[:2], stage="ir") != texts[0]
    assert len(traced) == 2
