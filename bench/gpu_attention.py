"""Attention on a GPU beside torch: `python -m bench.gpu_attention [--json FILE] [--only TEXT]`.

Times are medians of replays of captured graphs, ours and torch's backends in turns, in one process
on random data. TFLOP/s count half of the products where attention is causal, those within a window,
all under a mask, and five products for gradients; GB/s of the decode form count keys and values
once. The peer of windows is torch's compiled `flex_attention`. Floats of 8 bits stand beside the
same numbers in bf16, by ours and by torch's backends; results are bf16.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import cubepy as cp
from bench.replays import medians, torch
from cubepy.kernels.attention import entry, sequences
from cubepy.kernels.attention import gradients as attention_gradients

BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
SMALL = "float8_e4m3fn"
DEFAULT = "DEFAULT"
"""The backend that torch chooses."""


@dataclass(frozen=True)
class Work:
    """Attention of `queries` over `keys`, whose heads each serve `heads // kv_heads`. `window`: a
    query sees so many keys before its own and none behind; `mask`: the type of one of [queries,
    keys]."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    causal: bool = False
    dtype: str = "bfloat16"
    is_backward: bool = False
    window: int = 0
    mask: str = ""

    def __str__(self) -> str:
        text = f"{self.batch}x{self.heads}x{self.queries}x{self.size} {self.dtype}"
        text += f", {self.kv_heads} heads of {self.keys} keys"
        text += ", causal" if self.causal else ""
        text += f", window {self.window}" if self.window else ""
        text += f", {self.mask} mask" if self.mask else ""
        return text + (", gradients" if self.is_backward else "")

    @property
    def flops(self) -> int:
        """Of both products, or of the five that make gradients."""
        products = 5 if self.is_backward else 2
        keys = min(self.keys, self.window or self.keys)
        whole = 2 * products * self.batch * self.heads * self.queries * keys * self.size
        return whole // 2 if self.causal else whole

    @property
    def nbytes(self) -> int:
        """Of keys and values."""
        return 2 * self.batch * self.kv_heads * self.keys * self.size * (1 if self.is_small else 2)

    @property
    def is_small(self) -> bool:
        """Whether elements have 8 bits."""
        return self.dtype.startswith("float8")


def square(
    batch: int, heads: int, length: int, size: int, causal: bool = False, is_backward: bool = False
) -> Work:
    return Work(batch, heads, heads, length, length, size, causal, is_backward=is_backward)


WORK = [
    *(square(4, 16, 4096, 128, causal) for causal in (False, True)),
    *(square(4, 16, 4096, 128, causal, True) for causal in (False, True)),
    Work(32, 64, 8, 1, 8192, 128),
    *(square(16, 16, 1024, 128, causal) for causal in (False, True)),
    *(square(1, 16, 16384, 128, causal) for causal in (False, True)),
    *(square(4, 32, 4096, 64, causal) for causal in (False, True)),
    *(square(4, 32, 4096, 64, causal, True) for causal in (False, True)),
    Work(4, 32, 8, 4096, 4096, 128, True, is_backward=True),
    *(square(4, 8, 4096, 256, causal, True) for causal in (False, True)),
    *(replace(square(4, 16, 4096, 128, False, True), mask=kind) for kind in ("bool", "bfloat16")),
    Work(1, 16, 16, 16384, 16384, 128, is_backward=True, window=1024),
    *(square(4, 8, 4096, 256, causal) for causal in (False, True)),
    Work(4, 32, 8, 4096, 4096, 128, True),
    Work(4, 16, 16, 4096, 4096, 128, False, "float16"),
    Work(1, 32, 8, 1, 2048, 128),
    Work(1, 32, 8, 1, 8192, 128),
    Work(1, 32, 8, 1, 131072, 128),
    Work(4, 32, 8, 1, 2048, 128),
    Work(16, 32, 32, 1, 4096, 128),
    *(replace(square(4, 16, 4096, 128, causal), dtype=SMALL) for causal in (False, True)),
    *(replace(square(1, 16, 16384, 128, causal), dtype=SMALL) for causal in (False, True)),
    *(replace(square(4, 32, 4096, 64, causal), dtype=SMALL) for causal in (False, True)),
    *(replace(square(4, 8, 4096, 256, causal), dtype=SMALL) for causal in (False, True)),
    Work(32, 64, 8, 1, 8192, 128, False, SMALL),
]


@dataclass
class Row:
    """One line of the table: milliseconds of ours and of torch's backends, and the ratio to the
    fastest of those. `error`: the largest difference from torch's."""

    work: str
    ms: float
    tflops: float
    gbps: float
    peers: dict[str, float]
    ratio: float
    error: float


def arrays(work: Work) -> tuple[Any, Any, Any]:
    """Queries, keys and values on the GPU."""
    dtype = getattr(torch(), work.dtype)
    q = (work.batch, work.heads, work.queries, work.size)
    k = (work.batch, work.kv_heads, work.keys, work.size)
    wide = torch().bfloat16 if work.is_small else dtype
    q, k, v = (torch().randn(s, device="cuda", dtype=wide).to(dtype) for s in (q, k, k))
    return q, k, v


def mask_of(work: Work) -> Any:
    """The mask of all heads, or None."""
    if not work.mask:
        return None
    numbers = torch().randn(work.queries, work.keys, device="cuda")
    return numbers > -0.5 if work.mask == "bool" else numbers.to(getattr(torch(), work.mask))


def options_of(work: Work, mask: Any) -> dict[str, Any]:
    """As ours take them."""
    window = (work.window, 0) if work.window else None
    return {"causal": work.causal, "mask": mask, "window": window}


def flex(work: Work, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    """torch's attention within a window."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j <= work.window)

    blocks: Any = create_block_mask(sees, None, None, work.queries, work.keys, device="cuda")
    compiled: Any = torch().compile(flex_attention)
    return lambda: compiled(q, k, v, block_mask=blocks)


def candidates(work: Work, q: Any, k: Any, v: Any, mask: Any) -> dict[str, Callable[[], Any]]:
    """Ours, and torch's with each backend that takes the arrays."""
    nn = torch().nn
    grouped = work.heads != work.kv_heads
    dtype, given = torch().bfloat16 if work.is_small else q.dtype, (q, k, v)
    options = options_of(work, mask)
    found: dict[str, Callable[[], Any]] = {
        "cubepy": lambda: cp.kernels.attention(*given, dtype=dtype, **options)
    }
    if work.window:
        return found | {"FLEX_ATTENTION": flex(work, q, k, v)}
    if work.is_small:
        q, k, v = (x.to(dtype) for x in given)
        found["cubepy, bf16"] = lambda: cp.kernels.attention(q, k, v, **options)

    def attend() -> Any:
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=work.causal, enable_gqa=grouped
        )

    for name in (*BACKENDS, DEFAULT):
        backend = getattr(nn.attention.SDPBackend, name, None)

        def call(backend: Any = backend) -> Any:
            if backend is None:
                return attend()
            with nn.attention.sdpa_kernel(backend):
                return attend()

        try:
            call()
        except RuntimeError:  # the backend does not take this
            continue
        found[name] = call
    return found


def gradients(work: Work, q: Any, k: Any, v: Any, mask: Any) -> dict[str, Callable[[], Any]]:
    """Gradients by queries, keys and values: ours, and those of torch's backends."""
    options = options_of(work, mask)
    result, lse = cp.kernels.attention(q, k, v, return_lse=True, **options)
    grad = torch().randn_like(result)
    found: dict[str, Callable[[], Any]] = {
        "cubepy": lambda: cp.kernels.attention_grad(q, k, v, result, lse, grad, **options)
    }
    operands = tuple(x.detach().requires_grad_() for x in (q, k, v))
    for name, call in candidates(work, operands[0], operands[1], operands[2], mask).items():
        if name == "cubepy":
            continue
        if work.window:
            found[name] = differentiated(call, operands, grad)
            continue
        # The node that autograd would call, by itself: it can be captured like any other work.
        node = call().grad_fn
        # Where keys are shared another node may add their gradients.
        if [x.shape for x in node(grad)[:3]] == [x.shape for x in operands]:
            found[name] = lambda node=node: node(grad)[:3]
    return found


def differentiated(call: Callable[[], Any], operands: Any, grad: Any) -> Callable[[], Any]:
    """What autograd does for a compiled call: in the stream of the call, which a graph can capture
    unless it is the default one; the call is made once."""
    import torch._functorch.config as functorch

    functorch.donated_buffer = False  # its results are used several times
    cuda = torch().cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        result = call()
    cuda.synchronize()
    return lambda: torch().autograd.grad(result, operands, grad, retain_graph=True)


def measured(work: Work) -> Row:
    """One row."""
    made = gradients if work.is_backward else candidates
    calls = made(work, *arrays(work), mask_of(work))
    results = {name: call() for name, call in calls.items()}
    peers = [name for name in calls if name != "cubepy"]
    error = max(difference(results["cubepy"], results[name]) for name in peers[:1])
    ms = medians(calls)
    ours = ms.pop("cubepy")
    tflops, gbps = work.flops / ours / 1e9, work.nbytes / ours / 1e6
    return Row(str(work), ours, tflops, gbps, ms, min(ms.values()) / ours, error)


def difference(ours: Any, theirs: Any) -> float:
    """The largest between two results, or two tuples of them."""
    if isinstance(ours, tuple):
        return max(map(difference, ours, theirs))
    return float((ours.float() - theirs.float()).abs().max().item())


def show(row: Row) -> None:
    rate = f"{row.tflops:6.1f} TFLOP/s" if row.tflops > 50 else f"{row.gbps:6.0f} GB/s   "
    peers = ", ".join(f"{name.split('_')[0].lower()} {ms:.4f}" for name, ms in row.peers.items())
    print(
        f"{row.work:60} {row.ms:8.4f} ms {rate}  {row.ratio:5.3f} of the fastest ({peers})"
        f"  error {row.error:.1e}",
        flush=True,
    )


def without_wgmma() -> None:
    """From here on attention is made as GPUs of NVIDIA make it that have no `wgmma`."""
    ways = {"launches": (entry, sequences), "gradient_warpgroups": (attention_gradients,)}
    for name, modules in ways.items():
        for module in modules:
            vars(module)[name] = lambda *_: []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--fragments", action="store_true", help="ours by mma instead of wgmma")
    options = parser.parse_args()
    if options.fragments:
        without_wgmma()
    rows: list[Row] = []
    for work in WORK:
        if options.only in str(work):
            rows.append(measured(work))
            show(rows[-1])
    if options.json:
        report = {"device": torch().cuda.get_device_name(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
