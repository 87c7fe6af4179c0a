"""What CPUs can do by way of LLVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubepy.compilers.llvm import amx
from cubepy.compilers.llvm.memory import ATOMIC_WORDS
from cubepy.ir import ops
from cubepy.ir.types import bf16, f8e4m3, f8e5m2, f16
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.passes.vectorise import Choice

_STORED = frozenset((bf16, f8e4m3, f8e5m2))
"""Floats that are only stored: processors lack them, or flush their denormals."""
_LACKS = frozenset(row for row in ops.ATOMICS if row.step and row not in ATOMIC_WORDS)
"""Atomics that LLVM has no instruction for: they become loops of compare and swap."""


def capabilities(target: Target, vectorise: Choice = False) -> Capabilities:
    """Of one CPU; `vectorise`: see `passes/vectorise.py`.

    LLVM's own emission leaves no case of an operation open.
    """
    is_x86 = "sse2" in target.attributes
    lacks_f16 = is_x86 and "f16c" not in target.features
    stored = _STORED | {f16} if lacks_f16 else _STORED
    return Capabilities(
        target=str(target),
        kind=target.kind,
        stored=stored,
        soft=stored,
        bools_in_memory=True,
        lacks=_LACKS,
        refused=amx.refused(target),
        wraps_signed=True,
        reduces_lines=True,
        linear_positions=True,
        planes=Planes.LOOPS,
        vectorise=vectorise,
        line_bytes=target.line_bytes,
        line_registers=32 if target.line_bytes == 64 or target.family == "aarch64" else 16,
    )
