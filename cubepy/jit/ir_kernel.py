"""Kernels that come as IR: built with `cubepy.ir.build.Builder`, or parsed from text."""

from __future__ import annotations

import linecache
import re
from dataclasses import replace
from itertools import count
from math import prod
from typing import Any, Never

from cubepy.artifact import Data, Extent, Scalar, Stride, TensorMapOf
from cubepy.errors import Error, fail
from cubepy.frontend.facts import Facts
from cubepy.frontend.signature import Signature as CallSignature
from cubepy.ir import ops
from cubepy.ir.accesses import written_arguments
from cubepy.ir.core import NARROW_LIMIT, Kernel, Param
from cubepy.ir.types import Buffer, DType, element_of
from cubepy.ir.verify import InvalidIR, verify
from cubepy.jit.arguments import Layout, Matcher, wrong_arguments
from cubepy.jit.bounded import make_room
from cubepy.jit.compile import Compiled, Specialisations
from cubepy.jit.fast import FastPath
from cubepy.jit.grid import Fixed, Grid, dim3
from cubepy.jit.kernel import MAX_CONFIGURED, Launcher, without_frames
from cubepy.jit.launch import over
from cubepy.jit.settings import Settings, changed, unknown_setting
from cubepy.lang.annotations import TensorAnnotation
from cubepy.lang.cuda import TensorMap
from cubepy.lazy import cached_property
from cubepy.options import Options
from cubepy.span import Span
from cubepy.targets import Target


def from_ir(ir: Kernel | str) -> IRKernel:
    """A kernel from IR: one that was built, or its text as `inspect(stage="ir")` prints it.

    It is launched as others are: `kernel[cube_count](...)`, `kernel.over(what)(...)`, with the
    same checks of arguments; `configure`, `bind` and `inspect` too. What the IR was specialised on
    is fixed: cube dim, plane dim, the types of its arguments, and the layouts that its parameters
    name. Arguments are passed in the order of the IR's parameters, or by name. Raises
    `CompileError` E130 for IR that is not valid, at the line of the text.
    """
    try:
        return IRKernel(_parsed(ir) if isinstance(ir, str) else _verified(ir))
    except Error as error:
        raise without_frames(error) from None


def _parsed(text: str) -> Kernel:
    """The text as a kernel."""
    from cubepy.ir.parser import parse_kernel  # a process that parses no IR goes without

    file = _file(text)
    try:
        return _verified(parse_kernel(text, file))
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 0
        reason = str(error.msg).partition(": ")[2]
        raise fail(
            "E130", Span(file, line, column, line, column + 1, "<IR>"), reason=reason
        ) from None


def _file(text: str) -> str:
    """A name for the text, under which error messages find its lines."""
    found = re.search(r"@([A-Za-z_]\w*)", text)
    lines = text.splitlines(keepends=True)
    for number in count(1):
        file = f"<IR of {found[1] if found else 'a kernel'}{f' {number}' if number > 1 else ''}>"
        known = linecache.cache.setdefault(file, (len(text), None, lines, file))
        if known[2:3] == (lines,):
            return file
    raise AssertionError("unreachable")


def _verified(kernel: Kernel) -> Kernel:
    if not kernel.name.isidentifier() or not kernel.name.isascii():
        raise fail("E130", reason=f"{kernel.name!r} cannot name a kernel")
    if min(*kernel.cube_dim, kernel.plane_dim) < 1:
        raise fail("E130", reason="its cube dim and plane dim are at least 1")
    try:
        verify(kernel)
    except InvalidIR as error:
        raise fail(
            "E130", error.span, reason=error.failures[0].removesuffix(f" ({error.span})")
        ) from None
    written = kernel.written | written_arguments(kernel.params, kernel.body)
    return replace(kernel, written=written)


class IRKernel:
    """IR that is launched with a grid; see `from_ir`, which makes it, and the methods."""

    def __init__(
        self,
        ir: Kernel,
        settings: Settings | None = None,
        options: Options | None = None,
        family: IRKernel | None = None,
    ) -> None:
        self.ir = ir
        attributes: dict[str, Any] = dict(ir.attributes)
        fixed = Options(plane_dim=ir.plane_dim, checked=False, **attributes)
        self.settings = settings or Settings()
        self.options = options or fixed
        self.fast: FastPath | None = None
        self.native: Any = None
        self.made: dict[Any, Specialisations] = {} if family is None else family.made
        self._configured: dict[Any, IRKernel] = {} if family is None else family._configured
        self.__name__ = self.__qualname__ = ir.name

    @cached_property
    def annotations(self) -> dict[str, Any]:
        """What each argument must be, in the order of the parameters."""
        found: dict[str, Any] = {}
        for param in self.ir.params:
            if isinstance(param.kind, Data | Extent | Stride):
                found.setdefault(param.argument, TensorAnnotation())
            if not isinstance(param.kind, Extent | Stride):
                found[param.argument] = _annotation(param)
        return found

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(self.annotations)

    @property
    def specialisations(self) -> Specialisations:
        """The compiled forms under these options and the settings in force."""
        options = self.options.in_force()
        found = self.made.get(options)
        if found is None:
            found = self.made.setdefault(options, _CompiledIR(self.ir, options))
        return found

    def __getitem__(self, grid: Any) -> Launcher:
        """A launcher over `kernel[cube_count]`, or `kernel[cube_count, cube_dim]` with the IR's."""
        try:
            counts, dim = grid if _is_pair(grid) else (grid, self.ir.cube_dim)
            self._require_dim(dim)
            return Launcher(self, Fixed(dim3(counts, "the cube count", 0), self.ir.cube_dim))
        except Error as error:
            raise without_frames(error) from None

    def over(self, what: Any, *, per: str = "unit", cube_dim: Any = None) -> Launcher:
        """A launcher with enough cubes for `what`; see `CubeKernel.over`."""
        try:
            if cube_dim is not None:
                self._require_dim(cube_dim)
            return Launcher(self, over(what, per, self.ir.cube_dim))
        except Error as error:
            raise without_frames(error) from None

    def _require_dim(self, dim: Any) -> None:
        if dim3(dim, "the cube dim", 1) != self.ir.cube_dim:
            reason = f"the IR was made for cubes of {self.ir.cube_dim} units"
            raise fail("E416", given=dim, reason=reason, suggestion="leave it out")

    def configure(
        self,
        *,
        device: Any = None,
        stream: Any = None,
        fast_math: bool | None = None,
        contract: bool | None = None,
        **unknown: Never,
    ) -> IRKernel:
        """The same kernel with other settings; see `CubeKernel.configure`.

        Line size, plane dim, launch attributes and checks are part of the IR; E406 for these.
        """
        if unknown:
            known = ("device", "stream", "fast_math", "contract")
            raise unknown_setting(self.__name__, unknown, known)
        settings, options = changed(
            self.settings,
            self.options,
            device=device,
            stream=stream,
            fast_math=fast_math,
            contract=contract,
        )
        key = (settings, options)
        found = self._configured.get(key)
        if found is None:
            make_room(self._configured, MAX_CONFIGURED)
            made = IRKernel(self.ir, settings, options, self)
            found = self._configured.setdefault(key, made)
        return found

    def inspect(self, *, target: str = "cpu", stage: str | None = None) -> str:
        """The text of a stage for a target; see `CubeKernel.inspect`. The IR has all types."""
        try:
            return Launcher(self, None).text({}, target, stage)
        except Error as error:
            raise without_frames(error) from error.__cause__

    def signature_of(
        self, arguments: dict[str, Any], target: Target, grid: Grid | None
    ) -> CallSignature:
        """What is compiled where nothing is launched: all is in the IR."""
        return CallSignature(
            (), self.ir.cube_dim, self.ir.plane_dim, self.ir.noalias, False, self.ir.attributes
        )

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name; `LaunchError` E406 where they do not match the parameters."""
        names = self.parameters
        if len(args) <= len(names) and {*names[: len(args)], *kwargs} == {*names}:
            given = dict(zip(names, args, strict=False))
            if not given.keys() & kwargs.keys():
                return {name: {**given, **kwargs}[name] for name in names}
        reason = f"it takes {len(names)} arguments, got {len(args) + len(kwargs)}"
        missing = [name for name in names[len(args) :] if name not in kwargs]
        if missing and not kwargs.keys() - {*names}:
            reason = f"missing {', '.join(missing)}"
        raise wrong_arguments(self.__name__, TypeError(reason), f"({', '.join(names)})")

    def __repr__(self) -> str:
        return f"<kernel {self.__name__} from IR>"


def _is_pair(grid: Any) -> bool:
    """Whether a grid is a cube count and a cube dim, as in `kernel[count, dim]`."""
    return isinstance(grid, tuple) and len(grid) == 2


def _annotation(param: Param) -> Any:
    kind, t = param.kind, param.value.type
    if isinstance(kind, TensorMapOf):
        return TensorMap
    if isinstance(kind, Scalar):
        assert isinstance(t, DType)
        return t
    lanes = kind.lanes if isinstance(kind, Data) else 1
    return TensorAnnotation(element_of(t), lanes > 1, lanes if lanes > 1 else None)


class _CompiledIR(Specialisations):
    """The compiled forms of IR: one for each target, and another where arguments overlap."""

    def __init__(self, ir: Kernel, options: Options) -> None:
        super().__init__(None, options)
        self._ir = ir
        rows = [
            op for op in ir.body.walk() if op.row in (ops.UNIT_POS, ops.CUBE_POS, ops.ABSOLUTE_POS)
        ]
        names = {p.argument for p in ir.params if isinstance(p.value.type, Buffer)}
        self._known = Facts(
            uses_axes=any(op.attrs["axis"] != "all" for op in rows),
            shaped=set(names),
            written=set(ir.written),
            read=set(names),
            lined=set(ir.aligned),
        )

    def alignment(self, target: Target) -> int:
        """What the IR says, on all targets."""
        return self._ir.alignment

    def facts(self, signature: CallSignature, target: Target) -> Facts:
        """What the operations of the IR say; no trace is needed."""
        return self._known

    def get(self, signature: CallSignature, device: Any) -> Compiled:
        """The compiled form for a device; the IR serves all arguments that `check` lets through."""
        self._require(signature)
        return super().get(replace(signature, args=()), device)

    def trace(self, signature: CallSignature, target: Target) -> tuple[Kernel, Facts]:
        """The IR and its facts."""
        return self._ir, self._known

    def _require(self, signature: CallSignature) -> None:
        """`LaunchError` E424 where a launch does not promise what the IR presumes."""
        ir = self._ir
        missing = sorted((ir.small - signature.small) | (ir.aligned - signature.aligned))
        reason = ""
        if signature.limit > ir.limit:
            reason = f"a size, a stride or the number of units is above {ir.limit}"
        elif ir.flat and not signature.flat:
            reason = "the grid has more than one axis"
        elif missing and missing[0] in ir.small:
            reason = f"it is not between 0 and {NARROW_LIMIT}"
        elif missing:
            reason = f"its address or a stride is no multiple of {ir.alignment} bytes"
        if reason:
            argument = missing[0] if missing and "it" in reason[:3] else "the launch"
            raise fail("E424", kernel=ir.name, argument=argument, reason=reason)

    def check(self, kernel: str, matcher: Matcher) -> None:
        """`LaunchError` E424 for tensors of another layout than the IR was made for, and E402 for
        tensor maps of another box."""
        for param in self._ir.params:
            if isinstance(param.kind, Data) and param.argument in matcher.tensors:
                layout, _ = matcher.tensors[param.argument]
                reason = _misfit(self._ir, param.argument, param.kind, layout)
                if reason:
                    raise fail("E424", kernel=kernel, argument=param.argument, reason=reason)
            if isinstance(param.kind, TensorMapOf):
                self._check_map(kernel, param, matcher)

    def _check_map(self, kernel: str, param: Param, matcher: Matcher) -> None:
        given, kind = matcher.maps.get(param.argument), param.kind
        assert isinstance(kind, TensorMapOf)
        if given is None:
            return
        wanted = element_of(param.value.type), kind.box, kind.swizzle
        if given.axes != kind.axes:
            modes = [f"im2col of {n} axes" if n else "boxes" for n in (given.axes, kind.axes)]
            reason = f"it is a map for {modes[0]}, not for {modes[1]}"
            raise fail("E424", kernel=kernel, argument=param.argument, reason=reason)
        if (given.dtype, given.box, given.swizzle) != wanted:
            reason = f"it is a map of {given.dtype} with the box {given.box} and the swizzle "
            reason += f"{given.swizzle}, not {wanted[0]}, {wanted[1]} and {wanted[2]}"
            raise fail("E424", kernel=kernel, argument=param.argument, reason=reason)


def _misfit(ir: Kernel, name: str, kind: Data, layout: Layout) -> str:
    """Why an array of this layout does not fit; empty where it does."""
    own = [p.kind for p in ir.params if p.argument == name]
    strides = {k.axis for k in own if isinstance(k, Stride)}
    axes = strides | {k.axis for k in own if isinstance(k, Extent)}
    rank = max(axes, default=-1) + 1 if kind.rank is None else kind.rank
    if len(layout.shape) != rank and (axes or kind.rank is not None):
        return f"it has {len(layout.shape)} axes, not {rank}"
    is_linear = kind.linear or (kind.rank is None and kind.unit_axis is None and not strides)
    if is_linear and not layout.is_linear:
        return "it is not row-major without gaps"
    unit = kind.unit_axis
    if unit is not None and unit < len(layout.strides) and layout.strides[unit] != 1:
        return f"its stride along axis {unit} is not one element"
    if kind.align and not layout.begins_at(kind.align):
        return f"its address or a stride is no multiple of {kind.align} bytes"
    extent = (
        layout.shape[unit]
        if unit is not None and layout.shape
        else prod(n or 0 for n in layout.shape)
    )
    if kind.whole and extent is not None and extent % kind.lanes:
        return f"its extent of {extent} is no multiple of {kind.lanes}"
    return ""
