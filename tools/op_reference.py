"""The page about the operations of the IR, from the op table; mkdocs builds it, and so does

python tools/op_reference.py
"""

from cubepy.ir import cuda, ops
from cubepy.ir.opdef import OpDef, Resource

HEAD = """# Operations of the IR

Kernels become these operations before any target is chosen; `kernel.inspect(..., stage="ir")`
prints them. This page is generated from the op table, which also drives the verifier, constant
folding and the interpreter.

- *Written as*: how kernels spell it, or which part of CubePy makes it.
- *Effects*: what it reads and writes besides its operands and results, and which units must execute
  it together (it is *convergent*). Operations without any are pure: they may be removed, repeated
  and moved.
- *Uniform*: whether all units of a cube, or of a plane, get the same result.
- *ULP*: how far a result may lie from the exact one, in units of its last place. Operations
  without a number are exact or correctly rounded.
"""

GROUPS: tuple[tuple[str, OpDef], ...] = (
    ("Constants and conversions", ops.CONST),
    ("Arithmetic", ops.ADD),
    ("Bits", ops.AND),
    ("Comparison and choice", ops.EQ),
    ("Elementary functions", ops.EXP),
    ("Lines", ops.SPLAT),
    ("Memory", ops.ALLOC),
    ("Atomics", ops.ATOMIC_ADD),
    ("Positions", ops.UNIT_POS),
    ("Synchronisation", ops.SYNC_CUBE),
    ("Planes", ops.PLANE_SUM),
    ("Diagnosis", ops.PRINT),
    ("Mutable locals", ops.VAR),
    ("Control flow", ops.IF),
    ("Made by passes", ops.FAULT),
    ("NVIDIA's hardware", cuda.PTX),
)
"""Each group begins at an operation of the table and ends where the next group begins."""


def page() -> str:
    """The page in Markdown."""
    starts = {row.name: title for title, row in GROUPS}
    lines = [HEAD]
    for row in ops.TABLE.values():
        if row.name in starts:
            lines += [
                f"\n## {starts[row.name]}\n",
                "| operation | written as | meaning | attributes | effects | uniform | ULP |",
                "|---|---|---|---|---|---|---|",
            ]
        lines.append(table_row(row))
    return "\n".join(lines) + "\n"


def table_row(row: OpDef) -> str:
    """One line of a table."""
    attributes = ", ".join(f"`{a}`" for a in row.attrs)
    ulp = f"{row.ulp:g}" if row.ulp else ""
    surface, text = (" ".join(t.split()).replace("|", "\\|") for t in (row.surface, row.doc))
    written = f"`{surface}`" if is_python(row) else surface
    cells = (f"`{row.name}`", written, text, attributes, effects(row), row.uniformity.value, ulp)
    return f"| {' | '.join(cells)} |"


def is_python(row: OpDef) -> bool:
    """Whether the surface is code; else it says in words who makes the operation."""
    return "made " not in row.surface and not row.surface.startswith("the ")


def effects(row: OpDef) -> str:
    """What it reads and writes, and which units execute it together."""
    parts = [
        f"{verb} {', '.join(r.value for r in Resource if r in resources)}"
        for verb, resources in (("reads", row.reads), ("writes", row.writes))
        if resources
    ]
    parts += [f"convergent: {row.convergent.value}"] if row.convergent else []
    return "; ".join(parts)


if __name__ == "__main__":
    print(page())
