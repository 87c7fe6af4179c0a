"""The head of a kernel: its parameters, in the order of the artifact's slots."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cubepy.compilers.cstyle.spelling import Expr
from cubepy.ir.core import Param
from cubepy.ir.cuda import SET_REGISTERS
from cubepy.ir.types import Buffer, Space, element_of
from cubepy.passes.legalise.rows import FAULTED, NOTE

if TYPE_CHECKING:
    from cubepy.compilers.cstyle.emit import Emitter


class Signature:
    """Names and declarations of parameters; with faults, their record comes last."""

    def __init__(self, e: Emitter) -> None:
        self._e = e
        self.name = e.namer.fresh(e.kernel.name)
        self.has_faults = any(op.row in (NOTE, FAULTED) for op in e.kernel.body.walk())
        self.faults = ""
        self._params: list[str] = []

    def bind(self) -> None:
        """Name the parameters."""
        e, d = self._e, self._e.dialect
        numbers: list[str] = []
        for param in e.kernel.params:
            text = self._param(param, len(self._params))
            is_number = not isinstance(param.value.type, Buffer)
            (numbers if is_number and d.arguments_struct else self._params).append(text)
        if numbers:
            self._params.append(self._struct(numbers, len(self._params)))
        if self.has_faults:
            self.faults = e.namer.fresh("faults")
            self._params.append(d.fault.format(name=self.faults, slot=len(self._params)))

    def head(self, words: set[str]) -> list[str]:
        """The lines up to the opening brace, for a body in which `words` occur."""
        d = self._e.dialect
        extra = [text for word, text in d.extra_params.items() if word in words]
        units = prod(self._e.kernel.cube_dim)
        dims = dict(zip("xyz", self._e.kernel.cube_dim, strict=True))
        kernel = self._e.kernel
        cubes = kernel.attribute("cluster", None)
        cluster = d.cluster.format(*cubes) if cubes else ""
        planes = d.head_of_planes.format(plane=d.can.plane_dim) if kernel.plane_dim > 1 else ""
        sets_registers = any(op.row is SET_REGISTERS for op in kernel.body.walk())
        # setmaxnreg starts from the registers that the launch bounds allow: it needs both numbers.
        held = 1 if sets_registers else kernel.attribute("cubes_per_sm", 0)
        if held and d.simds:
            held = -(-held * -(-units // d.can.plane_dim) // d.simds)
        bounds = f"{units}, {held}" if held else str(units)
        fields = {"name": self.name, "units": bounds, "cluster": cluster, "planes": planes}
        opening = d.head.format(**fields, **dims)
        return _joined(opening, [*self._params, *extra])

    def _param(self, param: Param, slot: int) -> str:
        e, d = self._e, self._e.dialect
        name = e.namer.fresh(param.value.name)
        dtype = element_of(param.value.type)
        if isinstance(param.value.type, Buffer):
            e.bind(param.value, Expr(name))
            if param.value.type.space is Space.TENSOR_MAP:
                e.use_helpers(d.tensor_map)
                return d.tensor_map.format(name=name)
            fields = {
                "const": "" if param.argument in e.kernel.written else "const ",
                "type": e.lines.scalar(dtype),
                "restrict": d.restrict if e.kernel.noalias else "",
                "space": d.spaces[param.value.type.space],
            }
            return d.buffer.format(name=name, slot=slot, **fields)
        place = f"arguments.{name}" if d.arguments_struct else name
        e.bind(param.value, Expr(place))
        kind = d.param_types.get(dtype) or e.lines.scalar(dtype)
        return d.number.format(name=name, type=kind)

    def _struct(self, fields: list[str], slot: int) -> str:
        d = self._e.dialect
        body = "\n".join(f"    {field};" for field in fields)
        self._e.lines.declare("struct Arguments", f"struct Arguments {{\n{body}\n}};")
        return d.arguments_struct.format(slot=slot)


def _joined(opening: str, params: list[str]) -> list[str]:
    """On one line if it fits, else a parameter on each."""
    flat = f"{opening}({', '.join(params)}) {{"
    last = flat.rsplit("\n", 1)[-1]
    if len(last) <= 100:
        return flat.split("\n")
    return [
        *f"{opening}(".split("\n"),
        *(f"    {p}," for p in params[:-1]),
        f"    {params[-1]}) {{",
    ]
