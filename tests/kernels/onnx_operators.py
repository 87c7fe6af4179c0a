"""Operators of ONNX by `cubepy.kernels`: attributes and inputs of a node to its outputs.

Each function takes the attributes as a dictionary and the inputs in order, None where one is left
out. It raises `Unsupported` for what the library does not offer under one name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import cubepy as cp
from cubepy import kernels

Attributes = dict[str, Any]
Outputs = Sequence[Any]


class Unsupported(Exception):
    """What an operator asks for that the library does not offer."""


def refuse(attributes: Attributes, **neutral: Any) -> None:
    """Raise `Unsupported` for attributes that are other than these."""
    for name, value in neutral.items():
        if attributes.get(name, value) != value:
            raise Unsupported(f"{name}={attributes[name]}")


# --- elements ---------------------------------------------------------------------------------


def elementwise(function: Callable[..., Any]) -> Callable[..., Outputs]:
    """An operator that is one function of elements."""
    return lambda attributes, *inputs: [kernels.map(function, *inputs)]


def leaky(a: Attributes, x: Any) -> Outputs:
    slope = a.get("alpha", 0.01)
    return [kernels.map(lambda v: cp.where(v < 0, v * slope, v), x)]


def gelu(a: Attributes, x: Any) -> Outputs:
    if a.get("approximate", b"none") == b"tanh":
        c = math.sqrt(2 / math.pi)
        return [kernels.map(lambda v: 0.5 * v * (1 + cp.tanh(c * (v + 0.044715 * v * v * v))), x)]
    return [kernels.map(lambda v: 0.5 * v * (1 + cp.erf(v * math.sqrt(0.5))), x)]


def where(_: Attributes, condition: Any, a: Any, b: Any) -> Outputs:
    return [kernels.where(condition, a, b)]


ELEMENTS = {
    "Abs": elementwise(lambda x: abs(x)),
    "Add": elementwise(lambda a, b: a + b),
    "Atan": elementwise(lambda x: cp.atan(x)),
    "Ceil": elementwise(lambda x: cp.ceil(x)),
    "Cos": elementwise(lambda x: cp.cos(x)),
    "Cosh": elementwise(lambda x: cp.cosh(x)),
    "Erf": elementwise(lambda x: cp.erf(x)),
    "Exp": elementwise(lambda x: cp.exp(x)),
    "Floor": elementwise(lambda x: cp.floor(x)),
    "Gelu": gelu,
    "Greater": elementwise(lambda a, b: a > b),
    "LeakyRelu": leaky,
    "LessOrEqual": elementwise(lambda a, b: a <= b),
    "Log": elementwise(lambda x: cp.log(x)),
    "Mul": elementwise(lambda a, b: a * b),
    "Neg": elementwise(lambda x: -x),
    "Reciprocal": elementwise(lambda x: 1 / x),
    "Relu": elementwise(lambda x: cp.maximum(x, 0)),
    "Round": elementwise(lambda x: cp.rint(x)),
    "Sigmoid": elementwise(lambda x: 1 / (1 + cp.exp(-x))),
    "Sin": elementwise(lambda x: cp.sin(x)),
    "Sinh": elementwise(lambda x: cp.sinh(x)),
    "Softsign": elementwise(lambda x: x / (1 + abs(x))),
    "Sqrt": elementwise(lambda x: cp.sqrt(x)),
    "Sub": elementwise(lambda a, b: a - b),
    "Tan": elementwise(lambda x: cp.tan(x)),
    "Tanh": elementwise(lambda x: cp.tanh(x)),
    "Where": where,
}

# --- products ---------------------------------------------------------------------------------


def matmul(_: Attributes, a: Any, b: Any) -> Outputs:
    return [kernels.matmul(a, b)]


def gemm(a: Attributes, x: Any, y: Any, c: Any = None) -> Outputs:
    x = x.T if a.get("transA") else x
    y = y.T if a.get("transB") else y
    alpha, beta = a.get("alpha", 1.0), a.get("beta", 1.0)
    product = kernels.matmul(x, y)
    if c is None:
        return [kernels.map(lambda v: v * alpha, product)]
    return [kernels.map(lambda v, w: v * alpha + w * beta, product, c)]


def attention(
    a: Attributes,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
) -> Outputs:
    refuse(a, softcap=0.0, qk_matmul_output_mode=0, left_window_size=-1, right_window_size=-1)
    if lengths is not None or (past_k is not None and a.get("is_causal")):
        raise Unsupported("lengths of keys, or positions behind past keys")
    folded = q.ndim == 3
    if folded:
        q = split(q, a["q_num_heads"])
        k, v = split(k, a["kv_num_heads"]), split(v, a["kv_num_heads"])
    if past_k is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    out = kernels.attention(
        q, k, v, causal=bool(a.get("is_causal", 0)), mask=mask, scale=a.get("scale")
    )
    if folded:
        out = kernels.transpose(out, (0, 2, 1, 3)).reshape(*out.shape[::2], -1)
    return [out, k, v]


def split(x: Any, heads: int) -> Any:
    """[batch, length, heads * size] as [batch, heads, length, size], without a copy."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


PRODUCTS = {"Attention": attention, "Gemm": gemm, "MatMul": matmul}

# --- windows ----------------------------------------------------------------------------------


def padding(a: Attributes, x: Any, window: Sequence[int]) -> list[tuple[int, int]]:
    """The padding before and after each axis of space, also where `auto_pad` asks for it."""
    rank = len(window)
    automatic = a.get("auto_pad", b"NOTSET").decode()
    if automatic == "NOTSET":
        pads = a.get("pads", [0] * 2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if automatic == "VALID":
        return [(0, 0)] * rank
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    pairs = []
    for extent, size, stride, step in zip(x.shape[2:], window, strides, dilations, strict=True):
        total = max((-(-extent // stride) - 1) * stride + (size - 1) * step + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if automatic == "SAME_UPPER" else (more, less))
    return pairs


def symmetric(pairs: list[tuple[int, int]]) -> list[int]:
    """One number an axis, for functions that pad both sides alike."""
    if any(before != after for before, after in pairs):
        raise Unsupported("other padding before than after")
    return [before for before, _ in pairs]


def conv(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Outputs:
    rank = x.ndim - 2
    options = {"padding": tuple(padding(a, x, weight.shape[2:])), "groups": a.get("group", 1)}
    options |= {"stride": a.get("strides", [1] * rank), "dilation": a.get("dilations", [1] * rank)}
    function = (kernels.conv1d, kernels.conv2d, kernels.conv3d)[rank - 1]
    return [function(x, weight, bias, **options)]


def conv_transpose(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Outputs:
    if "output_shape" in a or a.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise Unsupported("padding from the result's shape")
    rank = x.ndim - 2
    options = {"padding": symmetric(padding(a, x, weight.shape[2:])), "groups": a.get("group", 1)}
    options |= {"stride": a.get("strides", [1] * rank), "dilation": a.get("dilations", [1] * rank)}
    function = (kernels.conv_transpose1d, kernels.conv_transpose2d, kernels.conv_transpose3d)
    return [
        function[rank - 1](
            x, weight, bias, output_padding=a.get("output_padding", [0] * rank), **options
        )
    ]


def windows(a: Attributes, x: Any) -> dict[str, Any]:
    """What both kinds of pooling take."""
    size = a["kernel_shape"]
    stride = a.get("strides", [1] * len(size))
    ceil = bool(a.get("ceil_mode", 0))
    options = {"kernel_size": size, "stride": stride, "ceil_mode": ceil}
    options |= {"padding": padding(a, x, size)}
    return options | {"dilation": a.get("dilations", [1] * len(size))}


def max_pool(a: Attributes, x: Any) -> Outputs:
    refuse(a, storage_order=0)
    rank = x.ndim - 2
    function = (kernels.max_pool1d, kernels.max_pool2d, kernels.max_pool3d)[rank - 1]
    options = windows(a, x)
    if x.dtype.kind != "f":
        return [function(x, **options)]
    out, found = function(x, return_indices=True, **options)
    planes = np.arange(math.prod(x.shape[:2])) * math.prod(x.shape[2:])  # ONNX counts all elements
    return [out, found + planes.reshape(*x.shape[:2], *[1] * rank)]


def avg_pool(a: Attributes, x: Any) -> Outputs:
    function = (kernels.avg_pool1d, kernels.avg_pool2d, kernels.avg_pool3d)[x.ndim - 3]
    return [function(x, count_include_pad=bool(a.get("count_include_pad", 0)), **windows(a, x))]


def global_pool(reduction: Callable[..., Any]) -> Callable[..., Outputs]:
    return lambda a, x: [reduction(x, axis=tuple(range(2, x.ndim)), keepdims=True)]


WINDOWS = {
    "AveragePool": avg_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "GlobalAveragePool": global_pool(kernels.mean),
    "GlobalMaxPool": global_pool(kernels.max),
    "MaxPool": max_pool,
}

# --- rows -------------------------------------------------------------------------------------


def reduction(function: Callable[..., Any], **options: Any) -> Callable[..., Outputs]:
    """A reduction over the axes of the second input, or all."""

    def run(a: Attributes, x: Any, axes: Any = None) -> Outputs:
        axis = None if axes is None or axes.size == 0 else tuple(int(axis) for axis in axes)
        if axis is None and a.get("noop_with_empty_axes"):
            raise Unsupported("no axes")
        if x.size == 0 and function in (kernels.max, kernels.min):
            raise Unsupported("the extreme of nothing")
        return [np.asarray(function(x, axis=axis, keepdims=bool(a.get("keepdims", 1)), **options))]

    return run


def position(function: Callable[..., Any]) -> Callable[..., Outputs]:
    def run(a: Attributes, x: Any) -> Outputs:
        refuse(a, select_last_index=0)
        return [function(x, axis=a.get("axis", 0), keepdims=bool(a.get("keepdims", 1)))]

    return run


def rows(function: Callable[..., Any]) -> Callable[..., Outputs]:
    return lambda a, x: [function(x, axis=a.get("axis", -1))]


def layer_norm(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Outputs:
    shape = x.shape[a.get("axis", -1) :]
    return [kernels.layer_norm(x, shape, weight, bias, a.get("epsilon", 1e-5))]


def rms_norm(a: Attributes, x: Any, weight: Any) -> Outputs:
    return [kernels.rms_norm(x, x.shape[a.get("axis", -1) :], weight, a.get("epsilon", 1e-5))]


def batch_norm(a: Attributes, x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Outputs:
    epsilon, training = a.get("epsilon", 1e-5), bool(a.get("training_mode", 0))
    return [kernels.batch_norm(x, mean.copy(), var.copy(), weight, bias, training, eps=epsilon)]


def group_norm(a: Attributes, x: Any, weight: Any, bias: Any) -> Outputs:
    return [kernels.group_norm(x, a["num_groups"], weight, bias, a.get("epsilon", 1e-5))]


def instance_norm(a: Attributes, x: Any, weight: Any, bias: Any) -> Outputs:
    return [kernels.instance_norm(x, weight=weight, bias=bias, eps=a.get("epsilon", 1e-5))]


def scan(function: Callable[..., Any]) -> Callable[..., Outputs]:
    def run(a: Attributes, x: Any, axis: Any) -> Outputs:
        refuse(a, exclusive=0)
        axis = int(np.asarray(axis).item())
        x = np.flip(x, axis) if a.get("reverse") else x  # a view of negative strides
        found = function(x, axis=axis).astype(x.dtype)  # sums of i32 are i64
        return [np.flip(found, axis) if a.get("reverse") else found]

    return run


def top(a: Attributes, x: Any, count: Any) -> Outputs:
    return kernels.topk(x, int(count[0]), a.get("axis", -1), bool(a.get("largest", 1)))


def loss(a: Attributes, x: Any, target: Any, weights: Any = None) -> Outputs:
    if weights is not None or x.ndim != 2:
        raise Unsupported("weights of classes, and classes along another axis")
    options = {"ignore_index": a["ignore_index"]} if "ignore_index" in a else {}
    options["reduction"] = a.get("reduction", b"mean").decode()
    return [np.asarray(kernels.cross_entropy(x, target, **options))]


ROWS = {
    "ArgMax": position(kernels.argmax),
    "ArgMin": position(kernels.argmin),
    "BatchNormalization": batch_norm,
    "CumProd": scan(kernels.cumprod),
    "CumSum": scan(kernels.cumsum),
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "LogSoftmax": rows(kernels.log_softmax),
    "RMSNormalization": rms_norm,
    "ReduceL1": reduction(kernels.norm, ord=1),
    "ReduceL2": reduction(kernels.norm),
    "ReduceLogSum": reduction(kernels.sum, epilogue=lambda v: cp.log(v)),
    "ReduceLogSumExp": reduction(kernels.logsumexp),
    "ReduceMax": reduction(kernels.max),
    "ReduceMean": reduction(kernels.mean),
    "ReduceMin": reduction(kernels.min),
    "ReduceProd": reduction(kernels.prod),
    "ReduceSum": reduction(kernels.sum),
    "ReduceSumSquare": reduction(kernels.sum, prologue=lambda v: v * v),
    "Softmax": rows(kernels.softmax),
    "SoftmaxCrossEntropyLoss": loss,
    "TopK": top,
}

# --- places -----------------------------------------------------------------------------------


def gather(mode: str) -> Callable[..., Outputs]:
    return lambda a, x, index: [kernels.gather(x, index, a.get("axis", 0), mode=mode)]


def scatter(a: Attributes, x: Any, index: Any, values: Any) -> Outputs:
    update = a.get("reduction", b"none").decode()
    update = "assign" if update == "none" else update
    return [kernels.scatter(x, index, values, a.get("axis", 0), update, mode="elements")]


def transpose(a: Attributes, x: Any) -> Outputs:
    return [kernels.transpose(x, a.get("perm"))]


def blocks(a: Attributes, x: Any, scale: Any) -> dict[str, Any]:
    """Whether scales are for all, for the indices of an axis, or for blocks along it."""
    if scale.ndim == 0 or scale.shape == (1,):
        return {}
    if scale.ndim == 1:
        return {"axis": a.get("axis", 1)}
    return {"axis": a.get("axis", 1), "block_size": a["block_size"]}


def number(x: Any) -> Any:
    """An array of one element as one without axes."""
    return x.reshape(()) if x is not None and x.shape == (1,) else x


def zeros(x: Any) -> bool:
    """Whether a zero point says nothing, as that of floats must."""
    return x is None or (x.dtype.kind not in "iu" and not np.any(x.astype("f4")))


def unpacked(x: Any, dtype: Any, size: int) -> Any:
    """Pairs of 4 bits along the last axis, of which the first has the low ones, as `dtype`."""
    pairs = np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1)[..., :size]
    signed = np.where(pairs > 7, pairs.astype("i1") - 16, pairs)
    return (signed if dtype.name == "int4" else pairs).astype(dtype)


def quantize(a: Attributes, x: Any, scale: Any, zero: Any = None) -> Outputs:
    refuse(a, precision=0)
    given = np.dtype(NUMBERS[a.get("output_dtype", 2)])
    dtype = given if zero is None else zero.dtype
    options = blocks(a, x, scale)
    if dtype.name in ("int4", "uint4"):
        found = kernels.quantize(x, number(scale), wide(zero), dtype.name, **options)
        return [unpacked(found, dtype, x.shape[-1])]
    if dtype.name not in LIKE_BYTES:
        raise Unsupported(dtype.name)
    zero = None if zeros(zero) else number(zero)
    return [kernels.quantize(x, number(scale), zero, dtype, **options)]


def dequantize(a: Attributes, q: Any, scale: Any, zero: Any = None) -> Outputs:
    options = blocks(a, q, scale)
    if q.dtype.name in ("int4", "uint4"):
        pairs = q.astype("i1").astype("u1") & 15
        pairs = np.pad(pairs, [(0, 0)] * (q.ndim - 1) + [(0, pairs.shape[-1] % 2)])
        options |= {"packed": q.dtype.name, "size": q.shape[-1]}
        q = pairs[..., ::2] | pairs[..., 1::2] << 4
    elif q.dtype.name not in LIKE_BYTES:
        raise Unsupported(q.dtype.name)
    zero = None if zeros(zero) else wide(zero)
    return [kernels.dequantize(q, number(scale), zero, scale.dtype, **options)]


def wide(zero: Any) -> Any:
    """A zero point, those of 4 bits as i8."""
    return None if zero is None else number(zero.astype("i1") if "4" in zero.dtype.name else zero)


NUMBERS = {2: "u1", 3: "i1", 4: "u2", 5: "i2"}  # the enumeration TensorProto.DataType
LIKE_BYTES = {"int8", "uint8", "int16", "uint16", "int32", "float8_e4m3fn", "float8_e5m2"}
PLACES = {
    "DequantizeLinear": dequantize,
    "Gather": gather("slices"),
    "GatherElements": gather("elements"),
    "QuantizeLinear": quantize,
    "ScatterElements": scatter,
    "Transpose": transpose,
}

OPERATORS: dict[str, Callable[..., Outputs]] = {**ELEMENTS, **PRODUCTS, **WINDOWS, **ROWS, **PLACES}
