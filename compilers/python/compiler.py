"""The compiler of the interpreter's target: Python source, as JSON with its line map."""

from __future__ import annotations

import json

from cubepy.artifact import Artifact
from cubepy.compilers.base import show, slots
from cubepy.compilers.python.emit import Module, emit
from cubepy.config import get
from cubepy.ir.core import Kernel
from cubepy.ir.types import element_of
from cubepy.options import Options
from cubepy.passes.legalise.check_target import refuse_foreign
from cubepy.targets import Target

FORMAT = 1


class PythonCompiler:
    """See `compilers.base.Compiler`."""

    stages = ("source",)

    def build(self, kernel: Kernel, target: Target, options: Options) -> Artifact:
        """Source, and for each of its lines the line of the user; see `to_data`."""
        refuse_foreign(kernel, target.kind, str(target))
        if "source" in get("dump"):
            show("source", kernel.name, self.text(kernel, target, options, "source"))
        code = json.dumps(to_data(kernel, emit(kernel))).encode()
        return Artifact(target, kernel.name, code, slots(kernel), kernel.cube_dim)

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """The Python source; comments name the user's lines where they change."""
        refuse_foreign(kernel, target.kind, str(target))
        return "\n".join([*_annotated(emit(kernel)), ""])


def to_data(kernel: Kernel, module: Module) -> dict[str, object]:
    """What the runtime needs, as plain data.

    `lines`: for each line of `source` a position in `spans`, -1 for none. `functions`: the name in
    the source, the user's file, name and first line. `sites`: operations that reports may name.
    """
    functions = module.functions
    lines = [line for f in functions for line in f.lines]
    return {
        "format": FORMAT,
        "kernel": kernel.name,
        "root": module.root.name,
        "waits": module.waits,
        "plane_dim": kernel.plane_dim,
        "elements": {
            p.argument: element_of(p.value.type).name for p in kernel.params if p.kind.is_address
        },
        "source": "\n".join([*module.prelude, *(" " * x.indent + x.text for x in lines), ""]),
        "lines": [-1] * len(module.prelude) + [line.span for line in lines],
        "functions": [
            [f.name, f.span.file, f.span.function, f.span.line] if f.span else [f.name, "", "", 1]
            for f in functions
        ],
        "meanings": {name: list(pair) for name, pair in module.meanings.items()},
        "spans": module.tables.span_rows(),
        "sites": module.tables.sites,
    }


def _annotated(module: Module) -> list[str]:
    spans, last = module.tables.spans, -1
    text = [*module.prelude]
    for function in module.functions:
        for line in function.lines:
            shown = " " * (4 * line.indent) + line.text
            if line.span >= 0 and line.span != last:
                shown += f"  # {spans[line.span].file}:{spans[line.span].line}"
                last = line.span
            text.append(shown)
    return text
