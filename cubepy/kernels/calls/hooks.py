"""Checks of the functions that users give prebuilt kernels: prologues, epilogues, those of `map`.

Whether they can be called as a kernel calls them is asked when a plan is made, before anything is
traced. What they give is known when they are traced, see `frontend.hooks`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import partial
from inspect import Parameter, Signature
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from cubepy.errors import fail
from cubepy.frontend.signature import comptime_key
from cubepy.ir.types import DType, Line, find_dtype
from cubepy.kernels.calls.arguments import shown
from cubepy.lang.function import BoundFunction, CubeFunction, unwrap
from cubepy.lang.objects import is_fixed_class, is_fixed_function
from cubepy.lang.postponed import signature_of
from cubepy.record import dataclass

if TYPE_CHECKING:
    from cubepy.frontend.dispatch import Intrinsic


def parts_of_epilogue(epilogue: Any) -> tuple[Any, tuple[Any, ...], tuple[str, ...]]:
    """The function, the arrays behind it, and their names in messages; a list is like a tuple."""
    if not isinstance(epilogue, tuple | list):
        return epilogue, (), ()
    function, *arrays = epilogue or ((),)  # an empty one is no function, see `check_epilogue`
    return function, tuple(arrays), tuple(f"epilogue[{k + 1}]" for k in range(len(arrays)))


def check_epilogue(kernel: str, epilogue: Any, arrays: int) -> None:
    """E602 unless a kernel can call `epilogue(v, index, *extras)` with so many arrays."""
    if epilogue is None and not arrays:
        return
    about = "an epilogue takes the element and its index"
    if arrays:
        about = "an epilogue takes the element, its index and the arrays behind it in the tuple"
    names = ("x",) if arrays == 1 else tuple(f"x{k + 1}" for k in range(arrays))
    name = "epilogue[0]" if arrays else "epilogue"
    check_function(kernel, name, epilogue, ("v", "index", *names), about)


def check_prologue(kernel: str, prologue: Any) -> None:
    """E602 unless a kernel can call `prologue(v)`."""
    if prologue is not None:
        check_function(kernel, "prologue", prologue, ("v",), "a prologue takes the element")


@dataclass(frozen=True, slots=True)
class Functions:
    """What a caller wants done with elements and with results; `arrays` are the epilogue's."""

    prologue: Any
    epilogue: Any
    arrays: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    """The names of the arrays."""

    @classmethod
    def of(cls, prologue: Any, epilogue: Any) -> Functions:
        """Of the arguments of a public function."""
        if prologue is None and epilogue is None:
            return PLAIN
        return cls(prologue, *parts_of_epilogue(epilogue))

    def check(self, kernel: str) -> None:
        """E602 unless a kernel can call both."""
        check_prologue(kernel, self.prologue)
        check_epilogue(kernel, self.epilogue, len(self.arrays))

    @property
    def key(self) -> Any:
        """What a plan depends on."""
        if self is PLAIN:
            return None
        both = self.prologue, self.epilogue
        return tuple(None if f is None else comptime_key(f) for f in both)


PLAIN = Functions(None, None)


def check_function(
    kernel: str, parameter: str, function: Any, arguments: Sequence[str], about: str
) -> None:
    """E602 unless a kernel can call what was given for a parameter with arguments of these names.

    `about`: what such a function takes, in words.
    """
    hint = f"{about}: write `lambda {', '.join(arguments)}: ...`"
    called = _called(function, tuple(arguments), {})
    if called is None:
        reason = f"`{parameter}` is {_described(function)}"
        raise fail("E602", function=kernel, reason=reason, suggestion=hint)
    try:
        called.signature.bind(*called.arguments, **called.keywords)
    except TypeError:
        text = f"({', '.join(arguments)})"
        reason = f"`{parameter}` is called with {text}, but its signature is {called.text}"
        raise fail("E602", function=kernel, reason=reason, suggestion=hint) from None


def _described(function: Any) -> str:
    """What was given in place of a function, and why kernels cannot call it."""
    if isinstance(function, type):
        made = f", not an object: write {function.__name__}()" if _call_of(function) else ""
        return f"the class `{function.__name__}`{made}"
    if isinstance(function, FunctionType) and _is_prebuilt(function):
        return f"`cp.kernels.{function.__name__}`, which launches kernels itself"
    if callable(function):
        name = getattr(function, "__name__", None) or shown(function)
        return f"the function `{name}`, which kernels cannot call"
    is_container = isinstance(function, list | tuple | dict | set)
    return f"{f'a {type(function).__name__}' if is_container else shown(function)}, no function"


@dataclass(frozen=True, slots=True)
class _Called:
    """The function that a call reaches in the end, and all that it is given."""

    name: str
    signature: Signature
    shown: Signature
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def text(self) -> str:
        """The function with its parameters, without annotations and long defaults."""
        short = (type(None), bool, int, float, str)
        kept: list[Parameter] = []
        for p in self.shown.parameters.values():
            is_short = p.default is Parameter.empty or type(p.default) in short
            default = p.default if is_short else _Dots()
            kept.append(p.replace(annotation=Parameter.empty, default=default))
        return f"{self.name}{Signature(kept)}"


class _Dots:
    """A default that is too long to be shown."""

    def __repr__(self) -> str:
        return "..."


_ONE = Signature([Parameter("value", Parameter.POSITIONAL_ONLY)])
_NUMBERS_OF = ("numpy", "ml_dtypes")


def _called(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _Called | None:
    """What a call in a kernel reaches; None for what a kernel cannot call."""
    if isinstance(function, partial):
        held: Any = function
        more = {**held.keywords, **keywords}
        return _called(held.func, (*held.args, *arguments), more)
    if isinstance(function, MethodType):
        is_plain = unwrap(function.__func__) is not None
        bound = function.__self__, *arguments
        return _called(function.__func__, bound, keywords) if is_plain else None
    if isinstance(function, BoundFunction):
        return _called(function.function, (function.owner, *arguments), keywords)
    known = _word(function)
    if known is not None:
        both = _signature_of_word(function, known), _stub(known)
        return _Called(known.name, *both, arguments, keywords)
    plain = unwrap(function)
    if plain is not None and not _is_prebuilt(plain):
        found = signature_of(plain, follow_wrapped=False)
        return _Called(plain.__name__, found, found, arguments, keywords)
    if isinstance(function, DType | Line):
        return _Called(f"cp.{function}", _ONE, _ONE, arguments, keywords)
    if isinstance(function, type):
        is_dtype = function.__module__ in _NUMBERS_OF and find_dtype(function) is not None
        return _Called(function.__name__, _ONE, _ONE, arguments, keywords) if is_dtype else None
    method = _call_of(type(function))
    return None if method is None else _called(method, (function, *arguments), keywords)


def _is_prebuilt(function: FunctionType) -> bool:
    """Whether a function is one of `cp.kernels`, which launches kernels itself."""
    public = vars(sys.modules["cubepy.kernels"])
    is_ours = (function.__module__ or "").startswith("cubepy.kernels.")
    return is_ours and public.get(function.__name__) is function


def _word(function: Any) -> Intrinsic | None:
    """The word of the language that a function is; None for functions of the user."""
    plain = unwrap(function)
    if plain is not None and not is_fixed_function(plain):
        return None  # as most are: where all code comes from disk, no tracer is loaded
    from cubepy.frontend import specialise  # noqa: F401  # which binds the words
    from cubepy.frontend.dispatch import intrinsic_of

    return intrinsic_of(function)


def _signature_of_word(function: Any, known: Intrinsic) -> Signature:
    """What a word of the language takes. A handler that takes any number of arguments counts them
    itself: then it is the stub that says, for twins of Python's and NumPy's how many at most."""
    own = _of_handler(known)
    if function in (min, max) or not any(p.kind is p.VAR_POSITIONAL for p in own):
        return Signature(own)
    stub = _stub(known)
    if hasattr(known.stub, "__cubepy_builtin__"):
        return stub
    return Signature([_optional(p) for p in stub.parameters.values()])


def _of_handler(known: Intrinsic) -> list[Parameter]:
    return list(signature_of(known.handler).parameters.values())[1:]  # the first is the frame


def _optional(p: Parameter) -> Parameter:
    is_one = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    return p.replace(default=None) if is_one else p


def _stub(known: Intrinsic) -> Signature:
    """The signature that a word of the language shows."""
    try:
        return signature_of(known.stub)
    except (TypeError, ValueError):  # one of Python's own, of which it says nothing
        return Signature(_of_handler(known))


def _call_of(cls: type) -> FunctionType | CubeFunction | None:
    """What objects of a class run when they are called, if kernels can run it."""
    method = None if is_fixed_class(cls) else inspect.getattr_static(cls, "__call__", None)
    return method if isinstance(method, FunctionType | CubeFunction) else None
