"""Code of GPUs: cubins, and the binaries that drivers of OpenCL make of a source."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.cache.folder import IS_SUPPORTED
from tests.cache.changes import kernel
from tests.cache.conftest import Cache, X, run

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the cache is POSIX only")
Load = Callable[..., Any]
TEXT = kernel("cp.exp(v) * N", "N = 2\n")


@pytest.fixture
def opencl() -> Any:
    """An OpenCL device, with the number of its builds from source."""
    try:
        found: Any = cp.device("opencl:0")
    except cp.Error:
        pytest.skip("no OpenCL device here")
    return found


def test_a_binary_is_built_once(
    cache: Cache, load: Load, opencl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    build = type(opencl)._from_source

    def count(self: Any, artifact: Any, options: Any) -> Any:
        built.append(artifact.entry)
        return build(self, artifact, options)

    monkeypatch.setattr(type(opencl), "_from_source", count)
    for expected in (1, 0):
        result = run(load(TEXT).k, device=opencl.name)
        np.testing.assert_allclose(result, np.exp(X) * 2, rtol=1e-6)
        assert (len(built), cache.counts()[0]) == (expected, expected)
        built.clear()
    run(load(TEXT.replace("N = 2", "N = 3")).k, device=opencl.name)
    assert len(built) == 1


def test_a_binary_that_the_driver_refuses_is_made_again(
    cache: Cache, load: Load, opencl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubepy.runtimes import remember

    run(load(TEXT).k, device=opencl.name)
    monkeypatch.setattr(remember, "keeper", lambda name, text, make: b"of another driver")
    np.testing.assert_allclose(run(load(TEXT).k, device=opencl.name), np.exp(X) * 2, rtol=1e-6)


def test_binaries_depend_on_the_driver(cache: Cache, load: Load, opencl: Any) -> None:
    texts: list[str] = []
    from cubepy.runtimes import remember

    before = remember.keeper
    try:
        remember.keeper = lambda name, text, make: (texts.append(text), make())[1]
        run(load(TEXT).k, device=opencl.name)
    finally:
        remember.keeper = before
    device = opencl._device
    for part in (device.driver_version, device.platform.version, device.name, "-cl-std"):
        assert part in texts[-1]


def test_checked_kernels_report_the_same_from_a_binary(
    cache: Cache, load: Load, opencl: Any
) -> None:
    text = "@cp.cube\ndef k(x, out):\n    out[cp.ABSOLUTE_POS + 1] = x[cp.ABSOLUTE_POS]\n"
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(cp.OutOfBoundsError) as caught:
            run(load(text).k, checked=True, device=opencl.name)
        said.append(str(caught.value))
    assert said[0] == said[1]


class Gpu:
    """A device of CUDA that loads nothing."""

    def __init__(self, arch: str) -> None:
        from cubepy.targets import parse_target

        self.target, self.name = parse_target(f"cuda:{arch}"), f"cuda:{arch}"

    def load(self, artifact: Any) -> Any:
        return SimpleNamespace(code=artifact.code)


def test_a_cubin_is_compiled_once(
    cache: Cache, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubepy.compilers.cuda import toolchain

    if not toolchain.version():
        pytest.skip("no NVRTC here")
    compiled: list[str] = []
    compile_now = toolchain.to_cubin

    def count(source: str, target: Any, registers: int | None = None) -> bytes:
        compiled.append(target.arch)
        return compile_now(source, target, registers)

    monkeypatch.setattr(toolchain, "to_cubin", count)
    codes: dict[tuple[str, Any], bytes] = {}
    cases = [("sm_80", None), ("sm_90", None), ("sm_90", 32)]
    for expected in (1, 0):
        for arch, registers in cases:
            device = Gpu(arch)
            module = load(TEXT)
            found = module.k.configure(registers=registers) if registers else module.k
            arguments = {name: cp.spec("f32[23]") for name in ("x", "out")}
            signature = found.signature_of(arguments, device.target, found.over(23).grid)
            with cp.settings(self_test=False):
                made = found.specialisations.get(signature, device)
            assert len(compiled) == expected, (arch, registers)
            compiled.clear()
            known = codes.setdefault((arch, registers), made.loaded.code)
            assert known == made.loaded.code and known[:4] == b"\x7fELF"
    assert len(set(codes.values())) == 3


def test_cubins_depend_on_the_version_of_nvrtc() -> None:
    from cubepy.cache.versions import versions
    from cubepy.compilers.cuda import toolchain

    assert toolchain.version() in versions("cuda")["NVRTC"]
