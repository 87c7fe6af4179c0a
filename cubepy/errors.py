"""Every error of CubePy: its class, and the catalogue of codes with template, hint and explanation.

The explanations are pages of their own, in the folder `explanations` beside this file. Nothing here
decides when an error is raised. An error is built with `fail(code, span, **fields)`, and
`cubepy explain CODE` prints the catalogue's entry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cubepy.record import dataclass
from cubepy.span import Span, in_user_code, render, render_calls


class Error(Exception):
    """Base of all errors that CubePy raises; `code` names the catalogue entry, if there is one."""

    code: str | None = None
    span: Span | None = None


class CompileError(Error):
    """The kernel cannot be compiled; `span` points at the user's line."""


class UnsupportedError(CompileError):
    """Valid in the language, but not available on the asked target."""


class LaunchError(Error, ValueError):
    """A launch was refused before anything was written."""


class LaunchTypeError(LaunchError, TypeError):
    """A launch was refused because an argument has the wrong type."""


class OutOfBoundsError(Error, IndexError):
    """A checked access left its array.

    `kernel`, `line`, `argument`, `axis`, `index`, `extent`, `unit` and `cube` say where.
    """

    kernel: str = ""
    line: int = 0
    argument: str = ""
    axis: int = 0
    index: int = 0
    extent: int = 0
    unit: tuple[int, int, int] = (0, 0, 0)
    cube: int = 0


class CheckError(Error):
    """A checked kernel divided by zero, failed an `assert`, let an index leave its 64 bits, raced,
    or read what nobody wrote.

    `kernel`, `line`, `unit` and `cube` say where; the interpreter sets `argument` too.
    """

    kernel: str = ""
    line: int = 0
    argument: str = ""
    unit: tuple[int, int, int] = (0, 0, 0)
    cube: int = 0


class DeviceError(Error):
    """A device failed or is not there."""


class DeviceLostError(DeviceError):
    """The device's context cannot be used any more in this process."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One row of the catalogue: `template` and `hint` are `str.format` texts over the fields."""

    code: str
    kind: type[Error]
    template: str
    hint: str

    @property
    def explanation(self) -> str:
        """The page in Markdown about the error: what it means, a wrong example and a right one."""
        page = Path(__file__).with_name("explanations") / f"{self.code}.md"
        return page.read_text(encoding="utf-8").strip()


CATALOGUE: dict[str, ErrorCode] = {}


def _row(code: str, kind: type[Error], template: str, hint: str) -> None:
    CATALOGUE[code] = ErrorCode(code, kind, template, hint)


def fail(code: str, span: Span | None = None, *, hint: str | None = None, **fields: Any) -> Error:
    """The error of the catalogue's `code`, ready to be raised; `span` draws the user's line.

    `hint` says what to do in this very case, in place of the catalogue's hint.
    """
    row = CATALOGUE[code]
    lines = [f"{code}: {row.template.format(**fields)}"]
    if span is not None:
        span = in_user_code(span)
        lines += [*render(span), *render_calls(span)]
    advice = row.hint.format(**fields) if hint is None else hint
    if advice:
        lines.append(f"  help: {advice}")
    error = row.kind("\n".join(lines))
    error.code, error.span = code, span
    return error


# E1xx: Python that is not in the kernel language, names and calls

_row("E101", CompileError, "{what} is not part of the kernel language", "{instead}")
_row("E102", CompileError, "the name `{name}` is not defined here", "{suggestion}")
_row(
    "E103",
    CompileError,
    "`{name}` is not set on every path to this line",
    "give `{name}` a value before the `if` or the loop",
)
_row(
    "E104",
    CompileError,
    "`{name}` has rank {rank} but is given {given} indices",
    "use at most as many indices as the tensor has axes",
)
_row(
    "E105",
    CompileError,
    "cannot read the source of `{name}`",
    "define the kernel in a file, a notebook cell, `python -c` or the REPL: of a program on stdin "
    "Python keeps no text",
)
_row(
    "E106",
    CompileError,
    "`{name}` was called with wrong arguments: {reason}",
    "its signature is {signature}",
)
_row(
    "E107",
    CompileError,
    "{name} has no attribute `{attribute}` inside a kernel",
    "{suggestion}",
)
_row("E108", CompileError, "{name} cannot be called inside a kernel", "{suggestion}")
_row(
    "E109",
    CompileError,
    "calls are nested deeper than {limit}: `{name}` recurses",
    "recursion must end at comptime; use a loop for anything else",
)
_row(
    "E110",
    CompileError,
    "a captured array (`{name}`) is not a constant",
    "pass the array as an argument of the kernel",
)
_row(
    "E112",
    CompileError,
    "{what} must be known at comptime",
    "use a literal, a cp.Comptime parameter, or a name that is assigned once from such values",
)
_row("E113", CompileError, "a comptime expression failed: {error}", "")
_row("E114", CompileError, "static_assert failed: {message}", "")
_row(
    "E115",
    CompileError,
    "a kernel returns nothing, but this `return` has a value",
    "store the value in an output tensor",
)
_row(
    "E116",
    CompileError,
    "the `return`s of the helper `{name}` do not have the same shape",
    "return the same number and kinds of values everywhere",
)
_row(
    "E117",
    CompileError,
    "this loop never ends: its condition always holds, and nothing leaves it",
    "leave it with `break` or `return`",
)
_row(
    "E118",
    CompileError,
    "not every path through the helper `{name}` returns a value",
    "end the function with a `return`",
)
_row(
    "E119",
    CompileError,
    "CubePy itself failed here, with {error}",
    "this is a defect of CubePy: please report it, with the kernel",
)
_row(
    "E120",
    CompileError,
    "the unrolled loop has {count} iterations; at most {limit} are unrolled",
    "loop over range(...), which is not unrolled",
)


_row(
    "E121",
    CompileError,
    "the type of `{name}` follows from itself in too many ways",
    "give it a type where it starts, as in cp.{type}(0)",
)
_row(
    "E122",
    CompileError,
    "the kernel is nested too deeply to be compiled",
    "put inner blocks or parts of the expression on lines of their own",
)
_row(
    "E123",
    CompileError,
    "the function `{name}` must give one number, but it gives {given}",
    "end it with a `return` of a number, as in `return v * 2`",
)
_row(
    "E130",
    CompileError,
    "this is no valid IR: {reason}",
    "compare it with what kernel.inspect(..., stage='ir') prints",
)


# E2xx: types and values

_row("E201", CompileError, "`{operator}` does not take {types}", "{suggestion}")
_row(
    "E202",
    CompileError,
    "{left} and {right} have no common type",
    "convert one of them, as in cp.{example}(value)",
)
_row(
    "E203",
    CompileError,
    "the literal {value} does not fit {type}",
    "use a wider type, as in cp.i64(value)",
)
_row(
    "E204",
    CompileError,
    "a condition on lanes ({type}) cannot choose a branch",
    "use cp.where(mask, a, b), or mask.any() / mask.all()",
)
_row(
    "E205",
    CompileError,
    "cannot store {value} into `{name}` of {type}",
    "convert explicitly, as in cp.{example}(value)",
)
_row(
    "E206",
    CompileError,
    "`{name}` changes its type here from {old} to {new}",
    "use a second name, or convert the value",
)
_row("E207", CompileError, "{what} expects {expected}, got {given}", "")
_row(
    "E208",
    CompileError,
    "line widths differ: {left} and {right}",
    "use lines of one width, or a scalar, which is repeated in all lanes",
)
_row(
    "E209",
    CompileError,
    "lane {lane} is outside a line of {width}",
    "lanes are counted from 0, and never from the end",
)
_row(
    "E210",
    CompileError,
    "`{name}` is {old} on one path to here and {new} on another",
    "use a second name, or convert the values to one type",
)
_row(
    "E211",
    CompileError,
    "`{name}` is {old} where an iteration of the loop begins, and {new} where it ends",
    "convert what is assigned to the type at the start, or start with the other type",
)
_row(
    "E212",
    CompileError,
    "a condition chooses between {first} and {second}, which have no common type at run time",
    "convert one of them, as in cp.i64(value)",
)


# E3xx: tensors and memory inside kernels

_row("E301", CompileError, "`{name}` is {type} and cannot be indexed", "{suggestion}")
_row("E302", CompileError, "{what} cannot be assigned to", "{suggestion}")
_row(
    "E303",
    CompileError,
    "this is a view of `{name}` with rank {rank}, not one of its elements",
    "index every axis, or use .flat[i]; write a loop to reach all elements of the view",
)
_row("E305", CompileError, "a slice of a tensor needs {what}", "")
_row(
    "E306",
    CompileError,
    "lane {lane} is outside a plane of {width}",
    "test kernels for GPUs with {kernel}.configure(plane_dim=32)",
)
_row(
    "E307",
    CompileError,
    "`{op}` may not be reached by all units of the {group}, which must reach it together",
    "move it out of the condition, or make the condition the same for all of them",
)
_row(
    "E308",
    CompileError,
    "{kernel}: a cube takes {nbytes} bytes for local and shared arrays and for values that units "
    "keep over barriers, more than {limit}; the largest part, of {part} bytes, is from here",
    "use smaller arrays or cubes, or allow more with CUBEPY_SCRATCH_BYTES",
)
_row(
    "E309",
    CompileError,
    "constant tables of {nbytes} bytes are more than a kernel may have, {limit}",
    "pass the array as an argument of the kernel",
)
_row("E310", UnsupportedError, "{op} is not available on {target}: {reason}", "{suggestion}")


# E4xx: arguments and grids of a launch; nothing has been written when one is raised

_row(
    "E401",
    LaunchTypeError,
    "{kernel}: `{argument}` {what}",
    "pass a NumPy array, a CubePy array, a torch CPU tensor or a number",
)
_row(
    "E402",
    LaunchTypeError,
    "{kernel}: `{argument}` has dtype {given}, expected {expected}",
    "convert it with .astype(...)",
)
_row(
    "E403",
    LaunchTypeError,
    "{kernel}: `{argument}` is big-endian ({given})",
    "convert it with .astype({argument}.dtype.newbyteorder('='))",
)
_row(
    "E404",
    LaunchError,
    "{kernel}: `{argument}` is written but read-only",
    "pass a writeable array; broadcast_to() and frombuffer() give read-only ones",
)
_row(
    "E405",
    LaunchError,
    "{kernel}: `{written}` is written and overlaps `{other}`",
    "pass the same array twice, or arrays that share no memory",
)
_row("E406", LaunchTypeError, "{kernel}: wrong arguments: {reason}", "signature: {signature}")
_row(
    "E407",
    LaunchError,
    "{kernel}: `{argument}` = {value} does not fit {type}",
    "annotate the parameter with a wider type",
)
_row("E408", LaunchError, "{kernel}: {what} is {given}; {target} takes {limit}", "{suggestion}")
_row(
    "E409",
    LaunchTypeError,
    "{kernel} is a kernel: it needs a grid",
    "write {kernel}.over(output)(...) or {kernel}[cube_count, cube_dim](...)",
)
_row(
    "E410",
    LaunchError,
    "{kernel}: `{argument}` is written and several of its elements share "
    "one address (strides {strides})",
    "pass an array without zero strides",
)
_row(
    "E412",
    LaunchTypeError,
    "{kernel}: the comptime argument `{argument}` is a {type}, which cannot be hashed",
    "pass a hashable value, such as a tuple instead of a list",
)
_row(
    "E414",
    LaunchError,
    "{kernel}: the elements of `{argument}` are not aligned to their size",
    "copy the array, as in {argument}.copy()",
)
_row(
    "E415",
    LaunchTypeError,
    "`{text}` is no argument specification: {reason}",
    "write f32[1024,1024], f32[?,1024] or f32",
)
_row("E420", LaunchError, "{name} cannot be {value!r}: {reason}", "")
_row(
    "E424",
    LaunchError,
    "{kernel}: `{argument}` does not have the layout that the IR was made for: {reason}",
    "copy it into an array that has, or make the IR for this one",
)
_row(
    "E425",
    LaunchTypeError,
    "{kernel}: the annotation of `{argument}` cannot be read: {reason}",
    "annotate it with cp.Tensor, cp.Lines, cp.Comptime, a dtype, or not at all",
)
_row("E426", LaunchTypeError, "there is no dtype {given}", "{suggestion}")
_row("E422", LaunchError, "no copy: {reason}", "{suggestion}")
_row("E421", LaunchError, "no tensor map: {reason}", "{suggestion}")
_row("E416", LaunchError, "{given} is no grid: {reason}", "{suggestion}")
_row(
    "E417",
    LaunchTypeError,
    "{kernel}: `{argument}` is an array, but its annotation `{expected}` asks for a number",
    "pass a number, or annotate the parameter as {tensor}",
)
_row(
    "E418",
    LaunchError,
    "{kernel}: `{argument}` is on {place}, but {other} is on {other_place}",
    "move it, as in cp.asarray({argument}, device={other_place!r})",
)
_row(
    "E419",
    LaunchError,
    "{kernel}: {what} {given}, more than the {limit} that a checked launch takes",
    "run it without checked mode",
)


# E5xx: devices, targets and stages; E6xx: prebuilt kernels

_row("E501", DeviceError, "there is no device `{name}` here", "{suggestion}")
_row("E502", CompileError, "the target {target} has no stage `{stage}`", "stages: {stages}")
_row("E503", CompileError, "unknown target `{target}`", "{suggestion}")
_row(
    "E504",
    DeviceError,
    "out of memory: {nbytes} bytes asked of {device}",
    "free arrays, or call cp.release_memory()",
)
_row(
    "E505",
    CompileError,
    "LLVM refused the generated code: {reason}",
    "this is a defect of CubePy: please report it with CUBEPY_DUMP=ir,llvm",
)
_row("E507", DeviceError, "{device}: {what} is missing", "{suggestion}")
_row("E508", DeviceError, "{device}: {call} failed: {reason}", "{suggestion}")
_row(
    "E509",
    DeviceLostError,
    "{device} is lost: {reason}; a kernel did it that was launched since the last wait: {kernels}",
    "rerun with CUBEPY_CHECKED=1 in a new process; other devices still work",
)
_row("E506", Error, "the setting {name} cannot be {value!r}: {reason}", "")
_row("E601", LaunchError, "{function}: {reason}", "{suggestion}")
_row("E602", LaunchTypeError, "{function}: {reason}", "{suggestion}")
_row(
    "E603",
    LaunchError,
    "{function}: {reason}",
    "let `valid` accept at least one configuration of the space for every problem",
)


# E7xx: what checked kernels and the interpreter find while they run

_row(
    "E701",
    OutOfBoundsError,
    "{kernel}: index {index} is out of bounds for axis {axis} of `{argument}` with extent "
    "{extent}, in {where}",
    "{advice}",
)


def bounds_advice(argument: Any, axis: Any, index: int) -> str:
    """How to keep an access inside: the bound that it crossed."""
    if index < 0:
        return "guard the access, as in `if i >= 0`; negative indices do not count from the end"
    return f"guard the access, as in `if i < {argument}.shape[{axis}]`"


def shift_count(dtype: str, reported: int) -> int:
    """The count of a shift, of which a check reports 64 bits."""
    return reported % (1 << 64) if dtype == "u64" else reported


_row(
    "E702",
    CheckError,
    "{kernel}: an integer is divided by zero in {where}",
    "test the divisor first; unchecked, x // 0 and x % 0 are 0",
)
_row("E703", CheckError, "{kernel}: assertion failed: {message}, in {where}", "")
_row(
    "E704",
    CheckError,
    "{kernel}: the index {left} {operator} {right} leaves 64 bits, in {where}",
    "indices are signed and never wrap; use cp.u64(...) where wrapping is meant, as in hashes",
)
_row(
    "E705",
    CheckError,
    "{kernel}: a shift of {type} by {count}, in {where}",
    "shift by 0 to {last}; unchecked, no bits are left: the result is 0, or the sign to the right",
)
_row(
    "E706",
    CheckError,
    "{kernel}: {dividend} // -1 leaves {type}, in {where}",
    "convert to a wider type first; unchecked, the result is {dividend}",
)
_row(
    "E711",
    CheckError,
    "{kernel}: data race on element {index} of `{argument}`: {where} {verb} it here, {other} "
    "{other_verb} it at {place}",
    "{suggestion}",
)
_row(
    "E712",
    CheckError,
    "{kernel}: element {index} of `{argument}` is read before anything wrote it, in {where}",
    "{suggestion}",
)
_row(
    "E713",
    CheckError,
    "{kernel}: {where} waits at `{op}`, but {other}",
    "move it out of the condition, or make the condition the same for all units of the {group}",
)
_row(
    "E714",
    OutOfBoundsError,
    "{kernel}: element {index} is outside `{argument}`, in {where}",
    "guard the access, as in `if i < x.shape[0]`",
)
_row("E715", CheckError, "{kernel}: the check `{kind}` failed in {where}", "")
