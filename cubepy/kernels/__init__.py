"""Prebuilt kernels, written in the language: pooling, reductions, elementwise functions.

They are loaded on first use, see `functions`.
"""

from typing import TYPE_CHECKING

from cubepy.kernels import functions as functions

if TYPE_CHECKING:
    from cubepy.kernels import random
    from cubepy.kernels.attention.entry import attention
    from cubepy.kernels.attention.gradients import attention_grad
    from cubepy.kernels.attention.sequences import attention_paged, attention_ragged
    from cubepy.kernels.convolution.entry import conv1d, conv2d, conv3d
    from cubepy.kernels.convolution.gradients import (
        conv1d_weight_grad,
        conv2d_weight_grad,
        conv3d_weight_grad,
    )
    from cubepy.kernels.convolution.transposed import (
        conv1d_input_grad,
        conv2d_input_grad,
        conv3d_input_grad,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
    )
    from cubepy.kernels.convolution.weights import prepack
    from cubepy.kernels.elementwise.entry import map
    from cubepy.kernels.elementwise.selection import where
    from cubepy.kernels.indexing.entry import gather, scatter
    from cubepy.kernels.matmul.entry import matmul
    from cubepy.kernels.matmul.experts import grouped_matmul
    from cubepy.kernels.normalisation.channels import batch_norm, group_norm, instance_norm
    from cubepy.kernels.normalisation.entry import layer_norm, log_softmax, rms_norm, softmax
    from cubepy.kernels.normalisation.losses import cross_entropy
    from cubepy.kernels.pooling.entry import (
        adaptive_avg_pool1d,
        adaptive_avg_pool2d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
        avg_pool1d,
        avg_pool2d,
        avg_pool3d,
        max_pool1d,
        max_pool2d,
        max_pool3d,
    )
    from cubepy.kernels.position.entry import argmax, argmin
    from cubepy.kernels.quantisation.entry import dequantize, quantize
    from cubepy.kernels.quantisation.operand import Quantised
    from cubepy.kernels.reduction.entry import (
        all,
        any,
        logsumexp,
        max,
        mean,
        min,
        norm,
        prod,
        std,
        sum,
        var,
    )
    from cubepy.kernels.scan.entry import cumprod, cumsum
    from cubepy.kernels.sorting.entry import sort, topk
    from cubepy.kernels.transposition.entry import transpose

__all__ = [
    "Quantised",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "all",
    "any",
    "argmax",
    "argmin",
    "attention",
    "attention_grad",
    "attention_paged",
    "attention_ragged",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "conv1d",
    "conv1d_input_grad",
    "conv1d_weight_grad",
    "conv2d",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "conv3d",
    "conv3d_input_grad",
    "conv3d_weight_grad",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "cumprod",
    "cumsum",
    "dequantize",
    "gather",
    "group_norm",
    "grouped_matmul",
    "instance_norm",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "map",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mean",
    "min",
    "norm",
    "prepack",
    "prod",
    "quantize",
    "random",
    "rms_norm",
    "scatter",
    "softmax",
    "sort",
    "std",
    "sum",
    "topk",
    "transpose",
    "var",
    "where",
]
