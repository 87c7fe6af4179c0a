"""Which arguments a kernel writes, as its operations say."""

from __future__ import annotations

from collections.abc import Iterable

from cubepy.ir.core import Param, Region
from cubepy.ir.opdef import Resource, effects
from cubepy.ir.types import Buffer


def written_arguments(params: Iterable[Param], body: Region) -> frozenset[str]:
    """The arguments whose memory an operation of `body` may write, in any space."""
    names = {p.value: p.argument for p in params if isinstance(p.value.type, Buffer)}
    written: set[str] = set()
    for op in body.walk():
        if Resource.GLOBAL in effects(op)[1]:
            written.update(names[v] for v in op.operands if v in names)
    return frozenset(written)
