"""Functions of elements: kernels of our own with `out`, `kernels.map` where one is returned."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cubepy as cp
from bench import kernels, peers, reference
from bench.arrays import make_empty, make_random, to_f64
from bench.kernels import gelu
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP = "elementwise"
SIZES = {"1 M": 1 << 20, "64 M": 64 << 20}
SMALL = 100_003

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One function in everybody's words; `torch` and `numpy` give (out=, returned), or None."""

    name: str
    arity: int
    kernel: Any
    body: Function
    reference: Function
    floor: float
    torch: Function
    numba: str
    numpy: Function | None = None
    sizes: tuple[str, ...] = tuple(SIZES)


def rows() -> Iterator[Row]:
    """Each operation at its sizes."""
    for operation in OPERATIONS:
        for size in operation.sizes:
            make = partial(_make, operation, SIZES[size])
            yield Row(GROUP, f"{operation.name} {size}", make)


def _make(operation: Operation, elements: int, small: bool) -> Case:
    n = SMALL if small else elements
    arrays = [make_random((n,), seed) for seed in range(operation.arity)]
    out = make_empty((n,))
    nbytes = out.nbytes * (operation.arity + 1)
    contenders = [
        *_ours(operation, arrays, out, nbytes),
        *_torch(operation, arrays, out, nbytes),
        *_numpy(operation, arrays, out, nbytes),
        _numba(operation, arrays, out, nbytes),
        *find_copies(nbytes),
    ]
    claims = [
        Claim("out", "cubepy out", ("torch out",), operation.floor),
        Claim("returned", "cubepy returned", ("torch returned",), operation.floor),
        Claim("roof", "cubepy out", COPIES, is_rate=True),
    ]
    expected = partial(operation.reference, *arrays)
    return Case(only_present(contenders), claims, expected, rtol=1e-5, atol=2e-6)


def _ours(
    operation: Operation, arrays: list[np.ndarray], out: np.ndarray, nbytes: int
) -> Iterator[Contender]:
    launch = operation.kernel.over(out)
    yield Contender(OURS, lambda: launch(*arrays, out), "out", nbytes, result=lambda: out)
    mapped = peers.find_prebuilt("map")
    if mapped is not None:
        yield Contender(OURS, lambda: mapped(operation.body, *arrays), "returned", nbytes)


def _torch(
    operation: Operation, arrays: list[np.ndarray], out: np.ndarray, nbytes: int
) -> Iterator[Contender]:
    torch = peers.find("torch")
    if torch is None:
        return
    given, returned = operation.torch(torch)
    tensors, target = [peers.as_torch(a) for a in arrays], peers.as_torch(out)
    if given is not None:
        call = partial(given, *tensors, out=target)
        yield Contender("torch", call, "out", nbytes, result=lambda: out)
    yield Contender("torch", partial(returned, *tensors), "returned", nbytes)


def _numpy(
    operation: Operation, arrays: list[np.ndarray], out: np.ndarray, nbytes: int
) -> Iterator[Contender]:
    if operation.numpy is None:
        return
    given, returned = operation.numpy()
    yield Contender("numpy", partial(given, *arrays, out=out), "out", nbytes, result=lambda: out)
    yield Contender("numpy", partial(returned, *arrays), "returned", nbytes)


def _numba(
    operation: Operation, arrays: list[np.ndarray], out: np.ndarray, nbytes: int
) -> Contender | None:
    if not peers.find("numba"):
        return None
    from bench import numba_kernels

    call = partial(getattr(numba_kernels, operation.numba), *arrays, out)
    return Contender("numba", call, "out", nbytes, result=lambda: out)


# In torch's words


def _torch_exp(torch: Any) -> tuple[Function, Function]:
    return torch.exp, torch.exp


def _torch_gelu(torch: Any) -> tuple[Function, Function]:
    def given(x: Any, out: Any) -> Any:
        return torch.ops.aten.gelu.out(x, out=out)

    return given, torch.nn.functional.gelu


def _torch_multiply_add(torch: Any) -> tuple[Function, Function]:
    def given(a: Any, b: Any, c: Any, out: Any) -> Any:
        return torch.addcmul(c, a, b, out=out)

    return given, lambda a, b, c: a * b + c


def _torch_chain(torch: Any) -> tuple[Function, Function]:
    gelu = torch.nn.functional.gelu

    def given(a: Any, b: Any, c: Any, out: Any) -> Any:
        return torch.mul(gelu(a * b + c), a, out=out)

    return given, lambda a, b, c: gelu(a * b + c) * a


# In NumPy's words


def _numpy_exp() -> tuple[Function, Function]:
    return np.exp, np.exp


def _numpy_multiply_add() -> tuple[Function, Function]:
    def given(a: Any, b: Any, c: Any, out: Any) -> Any:
        np.multiply(a, b, out=out)
        return np.add(out, c, out=out)

    return given, lambda a, b, c: a * b + c


# In ours, and what is right


@cp.cube
def _exp(x):
    return cp.exp(x)


@cp.cube
def _multiply_add(a, b, c):
    return a * b + c


@cp.cube
def _chain(a, b, c):
    return gelu(a * b + c) * a


def _exp_reference(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.exp, otypes=[np.float64])(to_f64(x))


def _chain_reference(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return reference.gelu(reference.multiply_add(a, b, c)) * to_f64(a)


OPERATIONS = (
    Operation(
        "exp", 1, kernels.exp_kernel, _exp, _exp_reference, 1.0, _torch_exp, "exp", _numpy_exp
    ),
    Operation(
        "gelu", 1, kernels.gelu_kernel, kernels.gelu, reference.gelu, 1.0, _torch_gelu, "gelu"
    ),
    Operation(
        "a*b+c",
        3,
        kernels.multiply_add_kernel,
        _multiply_add,
        reference.multiply_add,
        1.0,
        _torch_multiply_add,
        "multiply_add",
        _numpy_multiply_add,
    ),
    Operation(
        "gelu(a*b+c)*a",
        3,
        kernels.chain_kernel,
        _chain,
        _chain_reference,
        7.0,
        _torch_chain,
        "chain",
        sizes=("64 M",),
    ),
)
