"""`cubepy inspect`: the stages of a kernel as text, each line traced to a line of Python."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

import typer

from cubepy.artifact import Listing
from cubepy.cli.failures import misuse
from cubepy.cli.loading import load
from cubepy.cli.output import console, print_json
from cubepy.cli.values import is_literal, read_comptime, read_extents, split_pairs
from cubepy.errors import Error
from cubepy.jit.kernel import CubeKernel, Launcher
from cubepy.lang.annotations import Spec, spec
from cubepy.record import dataclass

_LEXERS = {"llvm": "llvm", "asm": "gas"}


@dataclass(frozen=True, slots=True)
class Request:
    """The command line; `configuration` goes to `kernel.configure`."""

    kernel: str
    args: list[str]
    comptime: list[str]
    target: str = "cpu"
    stage: str | None = None
    configuration: Mapping[str, Any] | None = None
    cube_dim: str | None = None

    @property
    def wanted_stage(self) -> str:
        """The stage, by default the one nearest to the target's language."""
        return self.stage or ("llvm" if self.target.startswith("cpu") else "source")


def show_inspection(request: Request, as_json: bool) -> None:
    """Print the asked stage."""
    name, listing = inspect_kernel(request)
    if as_json:
        print_json(describe(request, name, listing))
    else:
        _print_listing(listing, request.wanted_stage)


def inspect_kernel(request: Request) -> tuple[str, Listing]:
    """The kernel's name and the text of the stage."""
    module, name, found = load(request.kernel)
    specs = {k: _spec(k, v) for k, v in split_pairs("--arg", request.args).items()}
    comptime = read_comptime(request.comptime, module)
    if isinstance(found, CubeKernel):
        return name, inspect_cube(found, request, specs, comptime)
    if callable(found) and _is_prebuilt(found):
        from cubepy.cli.prebuilt import inspect_prebuilt

        return name, inspect_prebuilt(found, request, specs, comptime)
    raise misuse(
        f"`{name}` is a {type(found).__name__}, not a kernel", "decorate a function with @cp.cube"
    )


def _spec(name: str, text: str) -> Spec:
    """What stands for an argument; a value is said to belong to `--comptime`."""
    try:
        return spec(text)
    except Error:
        if not is_literal(text):
            raise
    reason = "a value, where a specification such as f32[1024] or f32 is expected"
    hint = f"write -c {name}={text} for the value of a cp.Comptime parameter"
    raise misuse(f"--arg {name}={text}: {reason}", hint)


def _is_prebuilt(found: Any) -> bool:
    return (getattr(found, "__module__", None) or "").startswith("cubepy.kernels")


def inspect_cube(
    kernel: CubeKernel, request: Request, specs: Mapping[str, Spec], comptime: dict[str, Any]
) -> Listing:
    """A stage of one kernel for arguments by name."""
    launcher = configured(kernel, request)
    text = launcher.inspect(
        target=request.target, stage=request.wanted_stage, comptime=comptime, **specs
    )
    return text if isinstance(text, Listing) else Listing(text)


def configured(kernel: CubeKernel, request: Request) -> Launcher:
    """The kernel with the options of the command line, over a grid if a cube dim is asked for."""
    chosen = {k: v for k, v in (request.configuration or {}).items() if v is not None}
    kernel = kernel.configure(**chosen)
    if request.cube_dim is None:
        return Launcher(kernel, None)
    return kernel[1, read_extents("--cube-dim", request.cube_dim)]


def describe(request: Request, name: str, listing: Listing) -> dict[str, Any]:
    """The inspection as plain data."""
    return {
        "target": request.target,
        "stage": request.wanted_stage,
        "kernel": name,
        "text": str(listing),
        "map": trace(listing),
    }


def trace(listing: Listing) -> list[dict[str, Any]]:
    """Where each line of a listing comes from, for the lines that come from Python."""
    return [
        {
            "line": line,
            "file": file,
            "source_line": source_line,
            "text": linecache.getline(file, source_line).strip(),
        }
        for line, (file, source_line) in listing.places.items()
    ]


def _print_listing(listing: Listing, stage: str) -> None:
    out = console()
    if not out.is_terminal or stage not in _LEXERS:
        typer.echo(str(listing), nl=False)
        return
    from rich.syntax import Syntax

    out.print(Syntax(str(listing), _LEXERS[stage], theme="ansi_dark", background_color="default"))
