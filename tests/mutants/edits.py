"""Mutants that are one edit of one module's source, applied as the module is imported.

Imports nothing of the product: the edit must be in place before the module is loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """`old`, which occurs once in the module, becomes `new`."""

    module: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.module}: `{self.old.strip()}` becomes `{self.new.strip()}`"

    def plant(self) -> None:
        """Edit the module when it is imported by this process."""
        assert self.module not in sys.modules, f"{self.module} is loaded already"
        sys.meta_path.insert(0, _Finder(self))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, edit: Edit) -> None:
        self._edit = edit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if fullname != self._edit.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._edit)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the edited source; never reads or writes compiled files."""

    def __init__(self, fullname: str, path: str, edit: Edit) -> None:
        super().__init__(fullname, path)
        self._edit = edit

    def path_stats(self, path: str) -> Any:
        raise OSError("no compiled file")

    def get_data(self, path: str) -> bytes:
        text = super().get_data(path).decode()
        assert text.count(self._edit.old) == 1, f"not once: {self._edit.name}"
        return text.replace(self._edit.old, self._edit.new).encode()


def _edits(module: str, *pairs: tuple[str, str]) -> list[Edit]:
    return [Edit(module, old, new) for old, new in pairs]


PASSES = "cubepy.passes."
EDITS: list[Edit] = [
    *_edits(
        PASSES + "contract",
        ("a if op.row is ops.ADD else self._negated(a, op), b, left", "a, b, left"),
        ("right if op.row is ops.ADD else self._negated(right, op)", "right"),
        ("if self._uses[value] == 1 else None", "if self._uses[value] else None"),
        (".is_float:\n            self._products", ".bits:\n            self._products"),
    ),
    *_edits(
        PASSES + "unroll",
        ("start + trip * step", "start + trip"),
        ("for trip in range(trips):", "for trip in range(max(1, trips - 1)):"),
        ("            carried = end.operands\n", "            carried = carried\n"),
        ("    if _jumps(body):\n        return False\n", ""),
    ),
    *_edits(
        PASSES + "cse",
        ("if op.row.is_commutative:", "if True:"),
        ("(op.row, operands, _attrs(op.attrs)) if op.attrs else", ""),
        ("        self._found = outer.copy()\n", ""),
        ("if op.row.is_pure:", "if op.row.is_pure or op.row.name == 'load':"),
        ("(type(attr), repr(attr)) if isinstance(attr, int | float | tuple) else attr", "attr"),
    ),
    *_edits(
        PASSES + "licm",
        ("target = max(target, self._depths.get(value, 0))", "target = 0"),
        ("elif depth and is_speculatable(op):", "elif depth and not op.regions and op.results:"),
    ),
    *_edits(
        PASSES + "dce",
        ("return not row.is_removable", "return row.name != 'store' and not row.is_removable"),
        ("self._work.append(op.operands[_fixed(op) + number])", "pass"),
        ("self._work += self.exits[op]  #", "pass  #"),
        ("            self._work.append(op.results[number])\n", ""),
    ),
    *_edits(
        PASSES + "construct_ssa",
        ("        self._present = outer\n        return built", "        return built"),
        ("self.emit_const(local.type.of, 0)", "self.emit_const(local.type.of, 1)"),
        (
            "self._present[op.operands[0]] = self.value(op.operands[1])",
            "self._read(op.operands[0])",
        ),
    ),
    *_edits(
        PASSES + "fold",
        ("0 if decided else 1", "1 if decided else 0"),
        ("trip_count(*bounds) == 0", "trip_count(*bounds) in (0, 1)"),
        ("zip(op.results, yes, no, strict=True)", "zip(op.results, no, yes, strict=True)"),
        ("first not in inside and all(", "all("),
        ("not row.is_pure or not row.exact or", "not row.is_pure or"),
    ),
    *_edits(
        PASSES + "facts",
        ("self.learn_order(a, b, 1 if row is ops.LT else 0)", "self.learn_order(a, b, 1)"),
        ("        if x[1] + distance <= y[0]:", "        if x[1] + distance <= y[0] + 1:"),
        ("self.learn_order(position, stop, step)", "self.learn_order(position, stop, step + 1)"),
        ("some = any if op.row is ops.MIN else all", "some = any"),
        ("some = any if op.row is ops.MAX else all", "some = any"),
        ("self._learned, self._order, self._true = learned, order, true", "pass"),
        ("yield x, -b[0] if largest else -b[1]", "yield x, -b[1] if largest else -b[0]"),
        ("if divisor is None or divisor[0] < 1:", "if divisor is None:"),
        ("ops.LT: ops.GE,", "ops.LT: ops.GT,"),
    ),
    *_edits(
        PASSES + "flow",
        ("if regions[0].terminator.row is not ops.YIELD:", "if True:"),
        ("facts.learn_order(position, stop, 1)", "facts.learn_order(position, stop, 2)"),
        ("low, high = union((low, high), r)", "pass"),
    ),
    *_edits(
        PASSES + "prove",
        ("least <= low and high <= largest", "least <= low"),
        ("if not self.facts.holds(v)]", "if not self.facts.holds(v)][:1]"),
    ),
    *_edits(
        PASSES + "ranges",
        ("return 0, extent - 1", "return 0, extent - 2"),
        ("a[0] - b[1], a[1] - b[0]", "a[0] - b[0], a[1] - b[1]"),
        ("corners = [x * y for x in a for y in b]", "corners = [a[0] * b[0], a[1] * b[1]]"),
        ("high = max(0, b[1] - 1)", "high = max(0, b[1] - 2)"),
        ("return -a[1], -a[0]", "return a[0], a[1]"),
        ("return (0, min(bounds)) if bounds", "return (0, max(bounds)) if bounds"),
        ("min(a[0], b[0]), min(a[1], b[1])\n\n\ndef _max", "a\n\n\ndef _max"),
    ),
    *_edits(
        PASSES + "lower_checks",
        ("(pass_, leave)", "(leave, pass_)"),
        ('{"code": self._count}', '{"code": 0}'),
        ("tuple(noted), {", "(), {"),
        (", Op(ops.RETURN, span=op.span))", ", Op(ops.YIELD, span=op.span))"),
    ),
    *_edits(
        PASSES + "fission",
        ("Op(ops.LT, (lane, units)", "Op(ops.LE, (lane, units)"),
        (
            "if program.active is None:",
            "if program.active is None or program.everyone is not None:",
        ),
        ("divergent = any(v not in common for v in _control_operands(op))", "divergent = False"),
        ('"size": size * self.program.units}', '"size": size}'),
    ),
    *_edits(
        PASSES + "emulate_planes",
        ("op.row.scan is Scan.INCLUSIVE", "op.row.scan is Scan.EXCLUSIVE"),
    ),
    *_edits(
        PASSES + "segments",
        ("notes += store_first(self._program.everyone, no, span)", "pass"),
        ("return [*self._die(op.span), op]", "return [op]"),
        ("(start, operands[1])", "(start, start)"),
        ("return [*before, Op(op.row, operands", "return [Op(op.row, operands"),
    ),
    *_edits(
        PASSES + "legalise.check_convergence",
        ("self._returned = op", "pass"),
        ("if self._returned is not before:", "if False:"),
        ("self._returned = after", "pass"),
    ),
    *_edits("cubepy.compilers.llvm.memory", ('f"icmp ne {spell', 'f"icmp eq {spell')),
    *_edits(
        "cubepy.compilers.llvm.units",
        ("left, right = test.operands if", "left, right = reversed(test.operands) if"),
        ("*body[:k], *then.ops[:-1], body[-1]]", "*body[:k], body[-1]]"),
        ("if test is None or test.row not in (ops.LT, ops.GT):", "if test is None:"),
    ),
]


def killers(name: str) -> list[list[str]]:
    """Arguments of pytest for what is likeliest to notice, the quickest first."""
    checked = ["tests/checked/test_forms.py", "tests/checked/test_proofs.py"]
    bounds = ["tests/checked/test_bounds.py", "-k", "barrier and cpu"]
    rules = {
        "facts": [["tests/passes/test_facts.py"], ["tests/passes/test_passes.py"], checked],
        "flow": [["tests/passes/test_facts.py"], ["tests/passes/test_passes.py"], checked],
        "prove": [["tests/passes/test_passes.py"], checked],
        "check_convergence": [
            ["tests/passes/test_uniformity.py"],
            ["tests/conformance/test_named_barriers.py", "-k", "cpu"],
        ],
        "llvm.units": [["tests/compilers/test_llvm_loops.py", "-k", "segments"]],
        "ranges": [["tests/passes/test_passes.py", "tests/passes/test_ranges.py"], checked],
        "lower_checks": [checked],
        "fission": [["tests/passes/test_fission.py"], ["tests/examples", "-k", "cpu"], bounds],
        "segments": [["tests/passes/test_fission.py"], ["tests/examples", "-k", "cpu"], bounds],
        PASSES: [["tests/passes/test_passes.py"], ["tests/passes/test_semantics.py"]],
        "python": [_operations("interpreter"), ["tests/interpreter/test_cooperation.py"]],
    }
    if name.startswith("fold "):
        quick = ["tests/passes/test_identities.py", "tests/passes/test_passes.py"]
        return [quick, ["tests/passes/test_semantics.py"], _operations("cpu")]
    if name.startswith("planes: "):
        return [["tests/passes/test_emulate_planes.py"]]
    found = next((value for word, value in rules.items() if word in name), [])
    return [*found, _operations("cpu")] if "python" not in name else found


def _operations(device: str) -> list[str]:
    others = "i8 or i16 or i64 or u16 or u32 or u64 or f16 or f64 or f8e"
    chosen = f"{device} and not ({others})"
    return ["tests/conformance/test_operations.py", "-k", chosen]
