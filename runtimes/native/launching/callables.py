"""Python objects that are called natively: their type, and where objects keep what is read of them.

Nothing here is compiled. A class that derives from `Base` can get a subclass whose calls go to
native code, and its instances can become instances of that, in place.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Any

SUPPORTED = (
    sys.implementation.name == "cpython"
    and sys.platform == "linux"
    and platform.machine() in ("x86_64", "aarch64")
    and ctypes.sizeof(ctypes.c_void_p) == 8
    and "t" not in sys.abiflags  # not free-threaded; `sysconfig` takes a millisecond to say so
    and not hasattr(sys, "getobjects")  # nor a build that traces references
    and object.__basicsize__ == 16
)
"""Whether types whose calls are native can be made here."""
_ENTRY_AT = 16
"""Where instances of `Base` keep the address of their native code, behind what all objects have,"""
WORDS_AT = 24
"""and that of words which belong to one of them; 0 for none."""
_MAPPING_AT, _SUBSCRIPT_AT = 112, 8
"""Where classes keep their functions of mappings, and where that of `x[key]` is among these."""
_CALL, _MEMBERS = 50, 72
_DEFAULT, _BASETYPE, _VECTORCALL = 1 << 18, 1 << 10, 1 << 11
_SIZE, _READONLY = 19, 1
_ONE_ARGUMENT, _ANY_ARGUMENTS, _BY_POSITION = 0x8, 0x80 | 0x2, 0x80


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_kept: list[Any] = []
"""What types refer to, which live as long as the process."""


def _type(name: str, size: int, flags: int, slots: list[_Slot], base: type) -> Any:
    rows = (_Slot * (len(slots) + 1))(*slots)
    spec = _Spec(name.encode(), size, 0, flags, ctypes.addressof(rows))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object)
    _kept.extend((rows, spec))
    return make(ctypes.addressof(spec), (base,))


def _members(*rows: _Member) -> _Slot:
    held = (_Member * (len(rows) + 1))(*rows)
    _kept.append(held)
    return _Slot(_MEMBERS, ctypes.addressof(held))


class _Plain:
    """Where no native code is called."""

    __slots__ = ()


def _base() -> Any:
    if not SUPPORTED:
        return _Plain
    entry = _Member(b"_entry", _SIZE, _ENTRY_AT, 0, None)
    words = _Member(b"_words", _SIZE, WORDS_AT, 0, None)
    flags = _DEFAULT | _BASETYPE
    return _type("cubepy.Base", WORDS_AT + 8, flags, [_members(entry, words)], object)


Base: Any = _base()
"""The class of objects that may be called natively; `_entry` is the address of the code, `_words`
that of what it keeps for the object."""


def native_class(cls: Any) -> Any:
    """A subclass of `cls`, itself derived from `Base`, whose calls go to `_entry`: a vectorcall.

    None where that is not possible. Set `_entry` before `__class__`.
    """
    if not SUPPORTED:
        return None
    offset = _Member(b"__vectorcalloffset__", _SIZE, _ENTRY_AT, _READONLY, None)
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    slots = [_members(offset), _Slot(_CALL, call)]
    name = f"{cls.__module__}.{cls.__name__}"
    return _type(name, cls.__basicsize__, _DEFAULT | _VECTORCALL, slots, cls)


class _Method(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def set_method(cls: Any, name: str, address: int, takes_one: bool) -> None:
    """Make native code a method of a class: of one argument, or of any with keywords."""
    doc = getattr(cls, name).__doc__ or ""
    flags = _ONE_ARGUMENT if takes_one else _ANY_ARGUMENTS
    row = _Method(name.encode(), address, flags, doc.encode())
    _kept.append(row)
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    setattr(cls, name, make(cls, ctypes.addressof(row)))


def set_subscript(cls: type, address: int) -> None:
    """Let `x[key]` go to native code that is the method `__getitem__` already, without looking the
    method up each time; nothing is done where classes are laid out in another way."""

    class Indexed:
        def __getitem__(self, key: Any) -> Any:
            """As any method of Python."""

    class Plain:
        pass

    usual = word(_subscript_at(Indexed))
    if word(_subscript_at(Plain)) == 0 and usual not in (0, word(_subscript_at(dict))):
        place = ctypes.c_size_t.from_address(_subscript_at(cls))
        place.value = address if place.value == usual else place.value


def _subscript_at(cls: type) -> int:
    """Where a class keeps what `x[key]` calls."""
    return word(id(cls) + _MAPPING_AT) + _SUBSCRIPT_AT


def function(name: str, address: int) -> Any:
    """Native code as a function of any arguments by position: (nothing, arguments, number)."""
    row = _Method(name.encode(), address, _BY_POSITION, None)
    _kept.append(row)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    return make(ctypes.addressof(row), None, None)


def word(address: int) -> int:
    """The word at an address."""
    return ctypes.c_size_t.from_address(address).value


def place_of(obj: Any, value: Any) -> int | None:
    """Where an object keeps a reference to a value, in bytes from its beginning."""
    size = type(obj).__basicsize__
    found = [at for at in range(16, size, 8) if word(id(obj) + at) == id(value)]
    return found[0] if len(found) == 1 else None
