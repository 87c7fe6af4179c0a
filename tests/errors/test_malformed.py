"""Malformed kernels compile or raise a typed error that points into their file; nothing else.

Each case mutates a kernel of examples/ (see mutations.py) and asks for its IR and for OpenCL C.
A failure prints seed and text: `python -m tests.errors.test_malformed FIRST LAST` tries others.
"""

import ast
import importlib.util
import linecache
import sys
import traceback
import warnings
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import cubepy as cp
from tests.errors.mutations import mutate

EXAMPLES = Path(__file__).parents[2] / "examples"
GRID = (8, 256)
F32, MATRIX = "f32[1024]", "f32[64,64]"
KERNELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bitonic_sort:step_kernel": (GRID, (F32, "i64", "i64")),
    "bitonic_sort:steps_in_block_kernel": (GRID, (F32, "i64", "i64")),
    "heat:heat_kernel": (GRID, (MATRIX, MATRIX, "f32")),
    "histogram:histogram_kernel": (GRID, ("u8[1000]", "i32[256]")),
    "kmeans:assign_kernel": (GRID, ("f32[100,2]", "f32[3,2]", "i32[100]", "f32[3,3]", 3)),
    "life:life_kernel": (GRID, ("i32[64,64]", "i32[64,64]")),
    "mandelbrot:mandelbrot_kernel": (GRID, (MATRIX, "f32", "f32", "f32", 50)),
    "matmul:matmul_kernel": ((8, (16, 16)), (MATRIX, MATRIX, MATRIX, 16)),
    "nbody:accelerations_kernel": (GRID, ("f32[100,4]", "f32[100,3]")),
    "raymarch:render_kernel": (GRID, (MATRIX,)),
    "reduction:row_sums_kernel": (GRID, (MATRIX, "f32[64]")),
    "reduction:tree_sum_kernel": (GRID, (F32, "f32[8]")),
    "scan:scan_blocks_kernel": (GRID, (F32, F32, "f32[8]")),
    "softmax:softmax_kernel": (GRID, (MATRIX, MATRIX)),
    "transpose:transpose_kernel": ((8, (32, 8)), (MATRIX, MATRIX)),
}
NAMES = sorted(KERNELS)
CASES = 40


def kernel_of(tree: ast.Module, name: str) -> ast.FunctionDef:
    (found,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    return found


def load(text: str, file: Path) -> ModuleType:
    """The text as a module whose source Python finds."""
    file.write_text(text, encoding="utf-8")
    linecache.checkcache(str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses ask for it
    try:
        exec(compile(text, str(file), "exec"), vars(module))
    finally:
        del sys.modules[file.stem]
    return module


def problem(name: str, seed: int, file: Path) -> str:
    """What is wrong with the answer to a mutant; nothing where it compiles or is refused well."""
    example, _, kernel = name.partition(":")
    tree = ast.parse((EXAMPLES / f"{example}.py").read_text(encoding="utf-8"))
    random = Random(f"{name} {seed}")
    change = mutate(kernel_of(tree, kernel), random)
    text = ast.unparse(tree)
    try:
        with warnings.catch_warnings(action="ignore"):
            module = load(text, file)
    except Exception:
        return ""  # Python itself refuses it, or its defaults, which run as the file is loaded
    grid, arguments = KERNELS[name]
    body = ast.unparse(kernel_of(tree, kernel))
    target, stage = random.choice((("cpu", "ir"), ("cuda:sm_80", "ir"), ("opencl", "source")))
    try:
        getattr(module, kernel)[grid].inspect(*arguments, target=target, stage=stage)
    except cp.Error as error:
        fault = fault_of(error, file)
        if not fault:
            return ""
        return f"{name} {seed} ({change}): {fault}\n{body}\n{error}\n{cause_of(error)}"
    except Exception as error:
        shown = "".join(traceback.format_exception(error)[-6:])
        return f"{name} {seed} ({change}) {type(error).__name__}\n{body}\n{shown}"
    return ""


def cause_of(error: BaseException) -> str:
    cause = error.__cause__
    return "".join(traceback.format_exception(cause)[-5:]) if cause else ""


def fault_of(error: cp.Error, file: Path) -> str:
    """What a demanding user has to say against an error."""
    if error.code in (None, "E119", "E505"):
        return f"it reports a defect: {error.code}"
    if not isinstance(error, cp.CompileError | cp.LaunchError):
        return f"a {type(error).__name__} is neither CompileError nor LaunchError"
    if error.span is None:
        return "it points nowhere"
    if str(file) not in {s.file for s in error.span.chain()}:
        return f"it points out of the file: {error.span}"
    lines = len(file.read_text(encoding="utf-8").splitlines())
    if error.span.file == str(file) and not 1 <= error.span.line <= lines:
        return f"there is no line {error.span.line}"
    if len(str(error).splitlines()) > 12:
        return "it is too long"
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_examples_compile_as_they_are(name: str, tmp_path: Path):
    example, _, kernel = name.partition(":")
    module = load((EXAMPLES / f"{example}.py").read_text(encoding="utf-8"), tmp_path / "valid.py")
    grid, arguments = KERNELS[name]
    assert getattr(module, kernel)[grid].inspect(*arguments, target="cuda:sm_80", stage="ir")


@pytest.mark.parametrize("name", NAMES)
def test_mutants_compile_or_are_refused(name: str, tmp_path: Path):
    found = [problem(name, seed, tmp_path / "mutant.py") for seed in range(CASES)]
    assert not any(found), "\n\n".join(f for f in found if f)


def main(first: int, last: int) -> None:
    """Print the problems of many mutants."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            for name in NAMES:
                if found := problem(name, seed, Path(folder) / "mutant.py"):
                    print(found, "\n" + "=" * 80, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
