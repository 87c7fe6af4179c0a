"""Remarks on a compiled kernel: what was vectorised, by whom, and why not."""

from __future__ import annotations

import re

from cubepy.artifact import Listing, Place
from cubepy.ir.core import Kernel
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.legalise.pipeline import legalise
from cubepy.passes.vectorise import Remark, vectorise
from cubepy.span import in_user_code, line_text

_VECTOR_LOOP = re.compile(r"^vector\.body[0-9]*:", re.M)
_WIDTH = re.compile(r"<(\d+) x (?:i(?!1>)\d+|half|float|double)>")


def explain(kernel: Kernel, can: Capabilities, optimised: str) -> Listing:
    """A line for each remark, each with its line of Python. `optimised`: LLVM's module."""
    before: list[Kernel] = []

    def note(name: str, legal: Kernel) -> None:
        if name == "lower_planes":
            before.append(legal)

    legalise(kernel, can, note)
    found = vectorise(before[0], can.line_bytes, can.vectorise, can.line_registers)
    remarks = list(found.remarks)
    if found.lanes == 1:
        remarks.append(Remark(_of_llvm(optimised)))
    return Listing.of([(_written(remark), _place(remark)) for remark in remarks])


def _of_llvm(optimised: str) -> str:
    """What LLVM's loop vectoriser did, as its blocks are named."""
    loops = len(_VECTOR_LOOP.findall(optimised))
    if not loops:
        return "LLVM vectorised no loop"
    widest = max((int(width) for width in _WIDTH.findall(optimised)), default=1)
    return f"LLVM vectorised {loops} loop{'s' if loops > 1 else ''}, in up to {widest} lanes"


def _written(remark: Remark) -> str:
    if remark.span is None:
        return remark.text
    span = in_user_code(remark.span)
    place = f"{span.file.rsplit('/', 1)[-1]}:{span.line}"
    return f"{place}: {remark.text}    {line_text(span).strip()}"


def _place(remark: Remark) -> Place | None:
    if remark.span is None:
        return None
    span = in_user_code(remark.span)
    return span.file, span.line
