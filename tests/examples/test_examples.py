"""Each example on each device, with planes of 1 and of 32, against NumPy in f64."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c import text_devices

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
CHECKS: dict[str, Callable[[ModuleType, bool, dict[str, Any]], None]] = {}
"""For each example: the module, whether sizes must be tiny, and the settings of its kernels."""

TEXTS = tuple(text_devices.DEVICES)
"""OpenCL C on PoCL and on Oclgrind, Metal as C++, on this CPU."""
TINY = ("interpreter", "oclgrind")
"""Devices that take a long time for a unit."""
EMULATES = ("cpu", "interpreter")
"""Devices that can run planes of any size."""


def load(name: str) -> ModuleType:
    """The example as a module; dataclasses ask for it in `sys.modules`."""
    full = f"example_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def check(function: Callable[..., None]) -> Callable[..., None]:
    CHECKS[function.__name__] = function
    return function


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@check
def transpose(example, tiny, settings):
    for shape in ((1, 1), (33, 20)) if tiny else ((1, 1), (32, 32), (100, 67), (0, 5)):
        x = normal(*shape)
        np.testing.assert_array_equal(example.transpose(x, **settings), x.T)


@check
def reduction(example, tiny, settings):
    for shape in ((3, 41),) if tiny else ((1, 1), (37, 1001), (3, 0)):
        x = normal(*shape)
        wide = x.astype(np.float64)
        total = example.tree_sum(x, cubes=2, **settings)
        assert total == pytest.approx(wide.sum(), abs=1e-5 * np.abs(wide).sum())
        sums = example.row_sums(x, **settings)
        np.testing.assert_allclose(sums, wide.sum(1), atol=1e-6 * max(1, x.shape[1]))


@check
def scan(example, tiny, settings):
    for n in (300,) if tiny else (1, 256, 257, 70_000):
        x = np.random.default_rng(n).integers(-9, 9, n, np.int32)
        np.testing.assert_array_equal(example.scan(x, **settings), np.cumsum(x))


@check
def histogram(example, tiny, settings):
    for n in (300,) if tiny else (0, 1, 20_000):
        x = np.random.default_rng(n).integers(0, 50, n).astype(np.uint8)
        found = example.histogram(x, cubes=2, **settings)
        np.testing.assert_array_equal(found, np.bincount(x, minlength=256))


@check
def bitonic_sort(example, tiny, settings):
    for n in (200,) if tiny else (1, 256, 257, 3000):
        x = normal(n).round(1)
        np.testing.assert_array_equal(example.sort(x, **settings), np.sort(x))


@check
def matmul(example, tiny, settings):
    for m, k, n in ((5, 9, 3),) if tiny else ((1, 1, 1), (32, 48, 16), (37, 21, 50), (4, 0, 3)):
        a, b = normal(m, k), normal(k, n, seed=2)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        found = example.matmul(a, b, 4 if tiny else 16, **settings)
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(1, k))


@check
def heat(example, tiny, settings):
    u = normal(5, 7) if tiny else normal(40, 300)
    found = example.heat(u, 3, **settings)
    np.testing.assert_allclose(found, example.reference(u, 3), atol=1e-5)


@check
def life(example, tiny, settings):
    for shape in ((17, 5),) if tiny else ((16, 16), (1, 3), (50, 70)):
        cells = np.random.default_rng(3).integers(0, 2, shape, np.uint8)
        found = example.life(cells, 3, **settings)
        np.testing.assert_array_equal(found, example.reference(cells, 3))


@check
def mandelbrot(example, tiny, settings):
    shape, limit = ((4, 6), 20) if tiny else ((60, 80), 100)
    # Near the border a last bit decides; without contraction both round alike.
    found = example.mandelbrot(shape, -2.2, 1.2, 3.2, limit, contract=False, **settings)
    np.testing.assert_array_equal(found, example.reference(shape, -2.2, 1.2, 3.2, limit))


@check
def nbody(example, tiny, settings):
    bodies = normal(5 if tiny else 150, 4)
    found = example.accelerations(bodies, **settings)
    np.testing.assert_allclose(found, example.reference(bodies), rtol=1e-3, atol=1e-2)


@check
def spmv(example, tiny, settings):
    dense = normal(5, 7) if tiny else normal(50, 130)
    dense[np.random.default_rng(0).random(dense.shape) < 0.7] = 0
    dense[1] = 0
    x = normal(dense.shape[1], seed=2)
    found = example.spmv(example.compress(dense), x, **settings)
    np.testing.assert_allclose(found, dense.astype(np.float64) @ x, atol=1e-4)


@check
def softmax(example, tiny, settings):
    for shape in ((2, 21),) if tiny else ((1, 1), (7, 64), (20, 203)):
        x = 30 * normal(*shape)
        found = example.softmax(x, **settings)
        np.testing.assert_allclose(found, example.reference(x), rtol=1e-5, atol=1e-30)


@check
def kmeans(example, tiny, settings):
    points = example.blobs(30 if tiny else 2000)
    start, rounds = points[:4], 1 if tiny else 5
    centres, labels = example.kmeans(points, start, rounds, **settings)
    expected, expected_labels = example.reference(points, start, rounds)
    assert (labels != expected_labels).mean() < 5e-3
    np.testing.assert_allclose(centres, expected, atol=2e-2)


@check
def raymarch(example, tiny, settings):
    shape = (6, 8) if tiny else (90, 160)
    difference = np.abs(example.render(*shape, **settings) - example.reference(*shape))
    assert np.median(difference) < 1e-2
    assert (difference > 0.1).mean() < 0.03


@check
def aobench(example, tiny, settings):
    shape = (4, 4) if tiny else (40, 56)
    difference = np.abs(example.render(*shape, **settings) - example.reference(*shape))
    assert difference.mean() < 2e-3
    assert (difference > 0.1).mean() < 0.01


@check
def binomial(example, tiny, settings):
    given = example.options(3 if tiny else 1000)
    found = example.puts(*given, **settings)
    np.testing.assert_allclose(found, example.reference(*given), rtol=1e-3, atol=1e-2)


def ways() -> list[Any]:
    """Every device with planes of 1 and 32, or its own; the CPU in checked mode too."""
    found = [
        pytest.param({"device": device.name, "plane_dim": plane}, id=f"{device.name}-{plane}")
        for device in cp.devices()
        for plane in ((1, 32) if device.name in EMULATES else (device.target.plane_dim,))
    ]
    for text in TEXTS:
        found += [
            pytest.param({"device": text, "plane_dim": plane}, id=f"{text}-{plane}")
            for plane in (1, 32)
        ]
    return [
        *found,
        *(
            pytest.param({"device": name, "checked": True}, id=f"{name}-checked")
            for name in ("cpu", *TEXTS)
        ),
    ]


@pytest.mark.parametrize("settings", ways())
@pytest.mark.parametrize("name", NAMES)
def test_example(name: str, settings: dict[str, Any], require_text_device: Any):
    if settings["device"] in TEXTS:
        require_text_device(settings["device"])
    code = refusal(name, settings)
    if code is None:
        CHECKS[name](load(name), settings["device"] in TINY, settings)
        return
    with pytest.raises(cp.CompileError, match=code):
        CHECKS[name](load(name), False, settings)


def refusal(name: str, settings: dict[str, Any]) -> str | None:
    """The code of the error where a text device is known to lack what an example needs."""
    device = settings["device"]
    if device == "metal_text" and name == "mandelbrot":
        return "E310"  # it computes in f64
    return None


@pytest.mark.parametrize("name", NAMES)
def test_main(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.chdir(tmp_path)
    load(name).main()
    assert "NumPy" in capsys.readouterr().out


def test_pictures_need_no_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    example = load("raymarch")
    path = example.save(np.linspace(0, 1, 6).reshape(2, 3), tmp_path / "a.png")
    data = path.read_bytes()
    assert path.suffix == ".ppm" and data.startswith(b"P6 3 2 255\n")
    assert len(data) == 11 + 2 * 3 * 3
