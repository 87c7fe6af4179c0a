"""What a cubin says of its kernel: an ELF file with a section of attributes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SECTIONS_AT, _COUNT_AT = 40, 60
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NAME, _OFFSET, _SIZE = 0, 4, 5
_ATTRIBUTES = b".nv.info\0"
_HEAD, _PAIR = struct.Struct("<BBH"), struct.Struct("<II")
_SIZED, _REGISTERS = 4, 0x2F
"""The format of attributes that have a size, and the one that says of a function how many registers
it has (`EIFMT_SVAL`, `EIATTR_REGCOUNT` of NVIDIA's binary tools)."""


def registers_of(cubin: bytes) -> int:
    """Registers of a unit of the only kernel; 0 where the file does not say."""
    try:
        return max(_registers(cubin), default=0)
    except (struct.error, IndexError):
        return 0


def _registers(cubin: bytes) -> Iterator[int]:
    attributes, at = _attributes(cubin), 0
    while at + _HEAD.size <= len(attributes):
        kind, what, size = _HEAD.unpack_from(attributes, at)
        at += _HEAD.size
        if kind == _SIZED:
            if what == _REGISTERS:
                yield _PAIR.unpack_from(attributes, at)[1]
            at += size


def _attributes(cubin: bytes) -> bytes:
    """The section of attributes of the whole file."""
    if cubin[:4] != b"\x7fELF":
        return b""
    (begin,) = struct.unpack_from("<Q", cubin, _SECTIONS_AT)
    count, names = struct.unpack_from("<HH", cubin, _COUNT_AT)
    rows = [_SECTION.unpack_from(cubin, begin + k * _SECTION.size) for k in range(count)]
    texts = rows[names][_OFFSET]
    for row in rows:
        if cubin.startswith(_ATTRIBUTES, texts + row[_NAME]):
            return cubin[row[_OFFSET] : row[_OFFSET] + row[_SIZE]]
    return b""
