"""The bytes of an entry: a header of JSON and a body, bound to a key by a hash.

The hash finds damage; against others who could write to the folder, see `folder`.
"""

from __future__ import annotations

import json
from struct import Struct
from struct import error as StructError
from typing import Any

from cubepy.hashing import sha256
from cubepy.record import dataclass

MAGIC = b"CubePy\x00\x01"
"""The last byte is the version of this layout."""
_HEAD = Struct("<8sQQ32s")


class Damaged(Exception):
    """The bytes are not what was written under this key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept under a key: `header` is plain data, `body` is raw code."""

    key: str
    header: dict[str, Any]
    body: bytes


def encode(entry: Entry) -> bytes:
    """The bytes of an entry."""
    header = json.dumps(entry.header, separators=(",", ":")).encode()
    digest = _digest(entry.key, header, entry.body)
    return _HEAD.pack(MAGIC, len(header), len(entry.body), digest) + header + entry.body


def decode(key: str, data: bytes) -> Entry:
    """The entry of a key; `Damaged` where a byte is not as it was written, or it is another's."""
    try:
        magic, header_bytes, body_bytes, digest = _HEAD.unpack_from(data)
    except StructError:
        raise Damaged("it is too short") from None
    if magic != MAGIC:
        raise Damaged("it has another format")
    if _HEAD.size + header_bytes + body_bytes != len(data):
        raise Damaged("it has another length")
    header, body = data[_HEAD.size :][:header_bytes], data[_HEAD.size + header_bytes :]
    if digest != _digest(key, header, body):
        raise Damaged("its hash differs")
    try:
        found = json.loads(header)
    except (ValueError, RecursionError):
        raise Damaged("its header is no JSON") from None
    if not isinstance(found, dict):
        raise Damaged("its header is no table")
    return Entry(key, found, body)


def _digest(key: str, header: bytes, body: bytes) -> bytes:
    lengths = f"{key} {len(header)} {len(body)}\n".encode()
    return sha256(lengths + header + body).digest()
