"""The page about the operations of the IR, from the op table; mkdocs builds it, and so does

python tools/op_reference.py
"""

from cubepy.ir import cuda, ops
from cubepy.ir.opdef import Effect, OpDef

HEAD = """# Operations of the IR

Kernels become these operations before any target is chosen; `kernel.inspect(..., stage="ir")`
prints them. This page is generated from the op table, which also drives the verifier, constant
folding and the interpreter.

- *Effect*: pure operations may be removed, repeated and moved. The others say what they do besides
  computing: `read`, `write`, `sync`, `control`.
- *Uniform*: whether all units of a cube get the same result.
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
                "| operation | meaning | attributes | effect | uniform | ULP |",
                "|---|---|---|---|---|---|",
            ]
        lines.append(table_row(row))
    return "\n".join(lines) + "\n"


def table_row(row: OpDef) -> str:
    """One line of a table."""
    attributes = ", ".join(f"`{a}`" for a in row.attrs)
    effect = "" if row.effect is Effect.NONE else row.effect.value
    ulp = f"{row.ulp:g}" if row.ulp else ""
    text = " ".join(row.doc.split()).replace("|", "\\|")
    cells = (f"`{row.name}`", text, attributes, effect, row.uniformity.value, ulp)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page())
