"""`print` with formats, `sep` and `end`: what each device writes is what Python would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.compilers.printf import directive
from cubepy.ir.types import f32, f64, i64, u32

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import numpy as np
import cubepy as cp

@cp.cube
def kernel(x, n: int, u: cp.u32, f: bool, w: cp.Comptime):
    v = x[0]
    print("a", v * 0, n, sep="-{}-", end="!%\\n")
    print(f"[{v:.3f}|{v:10.2e}|{v:<10.4g}|{v:+.1f}|{v: .0f}|{v:>12.3F}]%d{{}}")
    print(f"[{n:d}|{n:5d}|{n:<5}|{n:05}|{n:+d}|{n:.2f}|{n:{w}d}]", f"[{u:08X}|{u:o}|{u:>12}]")
    print(f"[{u:+d}|{u:> 9}|{u:+07}]")
    print(f"[{f}|{f:d}|{f:x}|{f:5}|{f:>7}|{f:<7}|{f:+}|{f:04}]", end="")
    print(f"{v:08.3f}|{v:+012.2e}|{n:04d}|{v:<8.1f}|{v:09.2F}|{{}}", v - v > 0)
    print("", None, sep=":")

for x, n in zip(map(float, sys.argv[2::2]), map(int, sys.argv[3::2])):
    if sys.argv[1] == "python":
        kernel.function([x], n, 48879, True, 7)
    else:
        kernel.configure(device=sys.argv[1])[1, 1](np.array([x]), n, 48879, True, 7)
"""
NUMBERS = (("3.14159", "-42"), ("-1e-7", "5"), ("inf", "123456789"), ("-inf", "0"), ("nan", "-1"))


def printed(path: Path, device: str) -> list[list[str]]:
    """The lines of each launch."""
    path.write_text(PROGRAM)
    command = [sys.executable, str(path), device, *(word for pair in NUMBERS for word in pair)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    size = len(lines) // len(NUMBERS)
    return [lines[k : k + size] for k in range(0, len(lines), size)]


def test_devices_print_as_python_does(tmp_path: Path):
    wanted, *others = (printed(tmp_path / "p.py", d) for d in ("python", "cpu", "interpreter"))
    for found in others:
        for (_, count), one, other in zip(NUMBERS, wanted, found, strict=True):
            assert other[1:] == one[1:]
            assert other[0].endswith(f"-{{}}-{count}!%")


FORMATS = """
@cp.cube
def kernel(x):
    i = cp.UNIT_POS
    v, w = x[i], cp.f32(x[i])
    print(f"{i:02d} <{v:08.3f}|{w:+010.1e}|{w:07.1F}|{v:.3f}|{v:5.1f}>{{}}", end="!%\\n")

numbers = [1.5, float("nan"), -float("nan"), float("inf"), -float("inf"), -0.0, -2.25]
kernel.configure(device=sys.argv[1])[1, len(numbers)](np.array(numbers))
"""


@pytest.mark.parametrize("device", ["cpu", "interpreter", "pocl"])
def test_numbers_that_are_not_finite(tmp_path: Path, device: str, require_text_device: Any):
    if device == "pocl":
        require_text_device(device)
        device = next(d.name for d in cp.devices() if "Portable" in d.properties.name)
    values = [1.5, np.nan, -np.nan, np.inf, -np.inf, -0.0, -2.25]
    wanted = [
        f"{i:02d} <{v:08.3f}|{v:+010.1e}|{v:07.1F}|{v:.3f}|{v:5.1f}>{{}}!%"
        for i, v in enumerate(values)
    ]
    path = tmp_path / "p.py"
    path.write_text("import sys\nimport numpy as np\nimport cubepy as cp\n" + FORMATS)
    done = subprocess.run(
        [sys.executable, str(path), device], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.splitlines()) == wanted


def test_c_dialects_write_directives():
    @cp.cube
    def kernel(x, n: int):
        print(f"{x[0]:8.3f}% {n:<5d}|", n, sep="", end=";")

    for target in ("opencl", "cuda:sm_80", "hip:gfx942"):
        text = kernel[1, 1].inspect("f64[4]", 3, target=target)
        assert '"%8.3f%% %-5l' in text
        assert ';"' in text


@pytest.mark.parametrize(
    ("spec", "dtype", "wanted"),
    [
        ("", f32, "%.9g"),
        (".3f", f64, "%.3f"),
        ("<8.1e", f32, "%-8.1e"),
        ("+08.2f", f64, "%+08.2f"),
        ("10", f32, "%10.9g"),
        ("d", i64, "%lld"),
        ("05", i64, "%05lld"),
        (">4x", u32, "%4llx"),
    ],
)
def test_directives(spec: str, dtype: Any, wanted: str):
    plain = "%.9g" if dtype.is_float else "%lld"
    assert directive(spec, dtype, plain) == wanted


@pytest.mark.parametrize(
    ("spec", "of"),
    [
        ("^8", "v"),
        (",", "n"),
        (".3", "v"),
        ("%", "v"),
        ("b", "n"),
        (">08.2f", "v"),
        ("<05d", "n"),
        ("x", "n"),
        ("d", "v"),
        ("*>8", "v"),
    ],
)
def test_formats_that_c_has_not_are_refused(spec: str, of: str):
    @cp.cube
    def kernel(x, n: int, spec: cp.Comptime, of: cp.Comptime):
        v = x[0]
        print(f"{v if of == 'v' else n:{spec}}")

    with pytest.raises(cp.CompileError, match="E207: the format"):
        kernel[1, 1](np.zeros(1), 3, spec, of)


def test_separators_are_comptime_text():
    @cp.cube
    def kernel(x):
        print(x[0], sep=3)  # pyright: ignore[reportArgumentType]

    with pytest.raises(cp.CompileError, match="E207: sep= of print"):
        kernel[1, 1](np.zeros(1))


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_text_that_c_would_cut_is_refused(end: str):
    text = "a\0b" if end == "\n" else "a"

    @cp.cube
    def kernel(x):
        print(text, x[0], end=end)

    with pytest.raises(cp.CompileError, match="E207: print expects text without NUL"):
        kernel[1, 1](np.zeros(1))
