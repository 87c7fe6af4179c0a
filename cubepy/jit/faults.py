"""Faults that checked kernels tell: the record of a launch, and the error that it becomes."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.artifact import Artifact, Fault
from cubepy.errors import Error, OutOfBoundsError, fail

CODES = {"bounds": "E701", "division": "E702", "assert": "E703"}


def fault_of(artifact: Artifact, record: Sequence[int]) -> Error | None:
    """The error that the words of a record tell; None if no check has failed."""
    if not record[0]:
        return None
    fault = artifact.faults[record[1]]
    unit = unit_position(record[2], artifact.cube_dim)
    where = f"unit {unit} of cube {record[3]}"
    error = _error(artifact.entry, fault, list(record[4:]), where)
    if isinstance(error, OutOfBoundsError):
        error.kernel, error.argument, error.axis = artifact.entry, fault.argument, fault.axis
        error.index, error.unit = record[4], unit
        error.line = fault.span.line if fault.span else 0
    return error


def _error(kernel: str, fault: Fault, told: list[int], where: str) -> Error:
    code = CODES[fault.kind]
    if fault.kind == "bounds":
        index, extent = told[:2]
        return fail(
            code,
            fault.span,
            kernel=kernel,
            argument=fault.argument,
            axis=fault.axis,
            index=index,
            extent=extent,
            where=where,
        )
    return fail(code, fault.span, kernel=kernel, message=fault.argument, where=where)


def unit_position(linear: int, cube_dim: tuple[int, int, int]) -> tuple[int, int, int]:
    """x, y and z of a unit that is counted with x fastest."""
    x, y, _ = cube_dim
    return linear % x, linear // x % y, linear // (x * y)
