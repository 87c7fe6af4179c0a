"""The commands and their options. What a command does is imported when it runs.

`cubepy --help` and shell completion are fast because nothing heavy is imported here.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from cubepy.cli.failures import USAGE, Failure, status_of


class Commands(TyperGroup):
    """The group of all commands; errors end as one short text on stderr, or with `--json` as one
    document on stdout."""

    def main(
        self,
        args: Sequence[str] | None = None,
        *more: Any,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its code."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            found = super().main(words, *more, standalone_mode=False, **extra)
        except Exception as error:
            failure = _failure_of(error)
            is_json = "--json" in words and words[0] != "bench"  # whose options are its own
            if is_json and not isinstance(error, OSError):  # as of a full disk
                from cubepy.cli.output import print_json

                print_json(failure.describe())
            else:
                print(failure.render(), file=sys.stderr)
            found = failure.status
        sys.exit(found if isinstance(found, int) else 0)


def _failure_of(error: Exception) -> Failure:
    """What a command raised, as a failure; what nobody foresaw is raised again."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, typer.Abort):
        return Failure("aborted")
    if isinstance(error, MemoryError):
        return Failure(f"out of memory: {error}", "pass smaller arrays")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Failure(f"cannot write: {error.strerror}")
    message = getattr(error, "format_message", None)
    if message is not None:  # a usage error of Typer, whose class is private
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "cubepy"
        return Failure(message(), f"{path} --help", getattr(error, "exit_code", USAGE))
    from cubepy.errors import Error

    if not isinstance(error, Error):
        raise error
    return Failure(str(error), "", status_of(error.code), error.code)


app = typer.Typer(
    cls=Commands,
    help="CubePy: kernels in Python, compiled for CPUs and GPUs.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Kernel = Annotated[
    str, typer.Argument(metavar="KERNEL", help="FILE.py:KERNEL or package.module:KERNEL.")
]


def _json_here_or_before(context: typer.Context, value: bool) -> bool:
    """Whether `--json` stands behind this command or behind one that it belongs to."""
    return value or bool(context.parent and context.parent.params.get("json"))


Json = Annotated[bool, typer.Option("--json", help="Print JSON.", callback=_json_here_or_before)]
Comptimes = Annotated[
    list[str] | None,
    typer.Option(
        "--comptime",
        "-c",
        metavar="NAME=VALUE",
        help="A comptime argument: a Python literal, a dtype or a name of the kernel's module.",
    ),
]
LineSize = Annotated[
    int | None, typer.Option("--line-size", help="Lanes of line-typed tensors.", min=1, max=256)
]
PlaneDim = Annotated[
    int | None, typer.Option("--plane-dim", help="Emulate planes of this many units.", min=1)
]
CubeDim = Annotated[
    str | None, typer.Option("--cube-dim", metavar="N[,N[,N]]", help="Units in a cube.")
]

Vectorise = Annotated[
    Literal["yes", "no", "auto"],
    typer.Option("--vectorise", help="Whether units become lanes of lines on a CPU."),
]
_CHOICES = {"yes": True, "no": False, "auto": None}


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    json: Json = False,
) -> None:
    """CubePy: kernels in Python, compiled for CPUs and GPUs."""
    if version:
        from cubepy.cli.output import show_version

        show_version(json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    image: Annotated[
        Path | None, typer.Argument(metavar="[IMAGE]", help="A picture of yours.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the report goes.")
    ] = Path("report"),
    megapixels: Annotated[
        float, typer.Option(help="Enlarge the picture to about this.", min=0.01, max=64)
    ] = 4.0,
    json: Json = False,
) -> None:
    """Run kernels on a photograph: verify them, time them, write a report."""
    from cubepy.cli.demo.show import show_demo

    show_demo(image, output, megapixels, json)


@app.command()
def inspect(
    kernel: Kernel,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", "-a", metavar="NAME=SPEC", help="Such as x=f32[1024,?] or a=f32."),
    ] = None,
    comptime: Comptimes = None,
    target: Annotated[
        str,
        typer.Option(help="cpu (this host), cpu:znver4, cuda:sm_90a, opencl, metal, hip:gfx942."),
    ] = "cpu",
    stage: Annotated[
        str | None,
        typer.Option(
            help="ir; llvm, asm, remarks (cpu); source (others); ptx, sass, resources (cuda)."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every stage of every target, one after the other.")
    ] = False,
    line_size: LineSize = None,
    plane_dim: PlaneDim = None,
    vectorise: Vectorise = "auto",
    cube_dim: CubeDim = None,
    json: Json = False,
) -> None:
    """Print what a kernel becomes on a target, with the lines of Python beside it."""
    from cubepy.cli.inspect_all import show_all
    from cubepy.cli.inspection import Request, show_inspection

    configuration = {
        "line_size": line_size,
        "plane_dim": plane_dim,
        "vectorise": _CHOICES[vectorise],
    }
    request = Request(kernel, arg or [], comptime or [], target, stage, configuration, cube_dim)
    show = show_all if everything else show_inspection
    show(request, json)


@app.command()
def run(
    kernel: Kernel,
    over: Annotated[
        str, typer.Option(metavar="WHAT", help="A count, a shape, or the name of an argument.")
    ],
    arg: Annotated[
        list[str] | None,
        typer.Option(
            "--arg",
            "-a",
            metavar="NAME=VALUE",
            help="x=@x.npy loads; out=f32[1024] makes zeros; a=1.5 is a number.",
        ),
    ] = None,
    comptime: Comptimes = None,
    out: Annotated[
        list[str] | None, typer.Option("--out", metavar="NAME=@FILE.npy", help="Save an argument.")
    ] = None,
    per: Annotated[str, typer.Option(help="What serves an item: unit, plane or cube.")] = "unit",
    device: Annotated[str, typer.Option(help="Where to run; see `cubepy devices`.")] = "cpu",
    line_size: LineSize = None,
    plane_dim: PlaneDim = None,
    vectorise: Vectorise = "auto",
    cube_dim: CubeDim = None,
    checked: Annotated[bool, typer.Option("--checked", help="Check every access.")] = False,
    json: Json = False,
) -> None:
    """Run a kernel on arrays from files."""
    from cubepy.cli.running import Request, show_run

    configuration = {
        "device": device,
        "line_size": line_size,
        "plane_dim": plane_dim,
        "vectorise": _CHOICES[vectorise],
        "checked": checked or None,
    }
    request = Request(
        kernel, arg or [], comptime or [], out or [], over, per, cube_dim, configuration
    )
    show_run(request, json)


@app.command()
def devices(json: Json = False) -> None:
    """List the devices that kernels can run on."""
    from cubepy.cli.devices import show_devices

    show_devices(json)


@app.command()
def doctor(json: Json = False) -> None:
    """Say what is here, what is missing and how to install it; compile and run a small kernel."""
    from cubepy.cli.doctor import show_doctor

    show_doctor(json)


cache = typer.Typer(rich_markup_mode="rich")
app.add_typer(cache, name="cache")


@cache.callback(invoke_without_command=True)
def cache_root(context: typer.Context, json: Json = False) -> None:
    """Show what is kept of compiled code on disk."""
    if context.invoked_subcommand is None:
        list_cache(json)


@cache.command("list")
def list_cache(json: Json = False) -> None:
    """List what is kept, where, and how much of it."""
    from cubepy.cli.caching import show_list

    show_list(json)


@cache.command("why")
def explain_cache(kernel: Kernel, json: Json = False) -> None:
    """Say what is kept of a kernel, and what has changed since, so that it is compiled again."""
    from cubepy.cli.caching import show_why

    show_why(kernel, json)


@cache.command("verify")
def verify_cache(json: Json = False) -> None:
    """Read all entries and remove those that are not whole; exit code 1 if there were any."""
    from cubepy.cli.caching import show_verify

    show_verify(json)


@cache.command("clear")
def clear_cache(json: Json = False) -> None:
    """Remove all entries."""
    from cubepy.cli.caching import show_clear

    show_clear(json)


tune = typer.Typer(rich_markup_mode="rich")
app.add_typer(tune, name="tune")
Pattern = Annotated[
    str, typer.Option("--only", metavar="PATTERN", help="Kernels, such as 'cubepy.kernels.*'.")
]


@tune.callback(invoke_without_command=True)
def tune_root(
    context: typer.Context,
    kernel: Annotated[
        str | None, typer.Option("--kernel", "-k", help="FILE.py:NAME or package.module:NAME.")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", "-a", metavar="NAME=SPEC", help="Such as x=f32[1024,512] or n=3."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(help='A JSON list of {"function": ..., "arguments": {...}}.'),
    ] = None,
    device: Annotated[str, typer.Option(help="Where the arrays lie.")] = "cpu",
    level: Annotated[str, typer.Option(help="quick or full.")] = "full",
    budget: Annotated[
        float | None, typer.Option(help="Seconds for each problem.", min=0.01)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the arrays and of the order of samples.")] = 0,
    workers: Annotated[
        str | None,
        typer.Option(help="How many processes of this host, or a Dask scheduler's address."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure the configurations of a tuned or prebuilt function; show, export and import picks."""
    if context.invoked_subcommand is not None:
        return
    from cubepy.cli.tuning import Request, show_tuning

    request = Request(kernel, arg or [], jobs, device, level, budget, seed, workers)
    show_tuning(request, json)


@tune.command("show")
def show_tune(
    only: Pattern = "*",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the times too.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what was measured: times, their intervals, and what is picked."""
    from cubepy.cli.tuning import show_records

    show_records(only, plot, json)


@tune.command("replay")
def replay_tune(only: Pattern = "*", json: Json = False) -> None:
    """Decide recorded searches again, from their samples, without a device."""
    from cubepy.cli.tuning import replay_records

    replay_records(only, json)


@tune.command("export")
def export_tune(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; else stdout.")
    ] = None,
    only: Pattern = "*",
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="The picks hold on all hardware.")
    ] = False,
    json: Json = False,
) -> None:
    """Write the picks as text that can be reviewed, committed and imported; the text is JSON."""
    from cubepy.cli.tuning import write_picks

    write_picks(file, only, anywhere, json)


@tune.command("import")
def import_tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What export wrote.")],
    json: Json = False,
) -> None:
    """Take picks from a file; they go before what is measured here, in every process."""
    from cubepy.cli.tuning import read_file

    read_file(file, json)


@app.command()
def explain(
    code: Annotated[
        str | None, typer.Argument(help="Such as E104; all of them if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Explain an error by its code."""
    from cubepy.cli.explanation import show_explanation

    show_explanation(code, json)


@app.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "help_option_names": [],
    }
)
def bench(context: typer.Context) -> None:
    """Time CubePy beside its peers; options go to `python -m bench` (needs the repository)."""
    from cubepy.cli.benchmark import run_benchmark

    raise typer.Exit(run_benchmark(context.args))


def main() -> None:
    """The entry point of the command `cubepy`."""
    from cubepy.config import forget_unknown_width

    forget_unknown_width()
    app(prog_name="cubepy")
