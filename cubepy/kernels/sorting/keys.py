"""Elements as keys: unsigned integers in the order of the results."""

from __future__ import annotations

from typing import Any

import cubepy as cp


def key_of(v: Any, how: Any) -> Any:
    """The key of an element. Bits of negative floats are turned, of others the sign alone."""
    key = ascending_key(v, how)
    return how.key(how.last) - key if how.is_descending else key


def ascending_key(v: Any, how: Any) -> Any:
    """The key of an element whose least comes first."""
    bits = how.key(cp.bitcast(v, how.bits))
    if how.dtype.is_float:
        sign = how.key(how.sign)
        turned = cp.where((bits & sign) != 0, how.key(how.last) - bits, bits | sign)
        return cp.where(v != v, how.key(how.last), cp.where(v == 0, sign, turned))
    return bits ^ how.key(how.sign) if how.is_signed else bits


def value_of(key: Any, row: Any, position: Any, how: Any) -> Any:
    """The element with a key; where several have the same, the one at its position of the row."""
    own = how.key(how.last) - key if how.is_descending else key
    sign = how.key(how.sign)
    if not how.dtype.is_float:
        return cp.bitcast(how.bits(own ^ sign if how.is_signed else own), how.dtype)
    bits = cp.where((own & sign) != 0, own ^ sign, how.key(how.last) - own)
    found = cp.bitcast(how.bits(bits), how.dtype)
    if own == sign or own == how.key(how.last):
        found = row[position]
    return found
