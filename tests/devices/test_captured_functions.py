"""Prebuilt functions in a CUDA graph that torch captures: a replay reads the arrays as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubepy import kernels
from tests.optional import require_package

torch = require_package("torch")
pytestmark = pytest.mark.usefixtures("cuda")


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, device="cuda").to(dtype)


def image(x: Any) -> Any:
    return x.reshape(2, 3, 32, -1)


def heads(x: Any) -> Any:
    return x.reshape(2, 4, 64, -1).bfloat16()


def square(x: Any) -> Any:
    return x.reshape(128, -1)


def gradients(x: Any) -> Any:
    result, lse = kernels.attention(x, x, x, return_lse=True)
    return kernels.attention_grad(x, x, x, result, lse, x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: kernels.map(lambda v: v * 2, x),
    "where": lambda x: kernels.where(x > 0, x, 2.5),
    "where of an integer": lambda x: kernels.where(x > 0, -7, x.int()),
    "quantize": lambda x: kernels.quantize(x, 0.02, 3),
    "dequantize": lambda x: kernels.dequantize(x.char(), 0.02, 3),
    "uniform": lambda x: x + kernels.random.uniform(tuple(x.shape), like=x, seed=2**63 + 1),
    "normal": lambda x: x + kernels.random.normal(tuple(x.shape), 1.5, 2.5, like=x, seed=3),
    "sum": lambda x: kernels.sum(x),
    "columns": lambda x: kernels.sum(square(x), 0),
    "argmax": lambda x: kernels.argmax(square(x), 1),
    "var": lambda x: kernels.var(square(x), 1),
    "logsumexp": lambda x: kernels.logsumexp(square(x), 1),
    "softmax": lambda x: kernels.softmax(square(x)),
    "layer_norm": lambda x: kernels.layer_norm(square(x), 192),
    "cumsum": lambda x: kernels.cumsum(square(x), 1),
    "sort": lambda x: kernels.sort(square(x))[0],
    "topk": lambda x: kernels.topk(square(x), 5)[0],
    "transpose": lambda x: kernels.transpose(square(x)),
    "gather": lambda x: kernels.gather(square(x), square(x).abs().long() % 128, 0),
    "max_pool2d": lambda x: kernels.max_pool2d(image(x), 3, 2, 1),
    "avg_pool2d": lambda x: kernels.avg_pool2d(image(x), 2),
    "conv2d": lambda x: kernels.conv2d(image(x), image(x)[0, :, :3, :3].expand(8, 3, 3, 3)),
    "matmul": lambda x: kernels.matmul(square(x), square(x).T),
    "matmul of halves": lambda x: kernels.matmul(square(x).bfloat16(), square(x).bfloat16().T),
    "odd matmul": lambda x: kernels.matmul(square(x)[:33, :65].half(), square(x)[:65, :31].half()),
    "attention": lambda x: kernels.attention(heads(x), heads(x), heads(x)),
    "causal attention": lambda x: kernels.attention(
        heads(x), heads(x), heads(x), causal=True, scale=0.3
    ),
    "attention_grad": lambda x: gradients(heads(x))[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str):
    call, x = FUNCTIONS[name], drawn(2 * 3 * 32 * 128)
    for _ in range(2):
        call(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(x)
    for _ in range(2):
        fresh = drawn(*x.shape)
        x.copy_(fresh)
        found.fill_(1)
        graph.replay()
        filler = [torch.full((1 << 16,), 5.0, device="cuda") for _ in range(8)]
        expected = call(fresh)
        torch.cuda.synchronize()
        assert torch.equal(found, expected), f"{(found != expected).sum()} of {found.numel()}"
        del filler
