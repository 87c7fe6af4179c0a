"""The operator tests of the `onnx` package: its inputs, its results, its tolerances."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

from tests.kernels.onnx_operators import OPERATORS, Unsupported
from tests.optional import require_package

pytestmark = pytest.mark.optional("onnx")


@functools.cache
def cases() -> dict[str, list[Any]]:
    """The package's tests of single nodes, by operator; its own code makes them."""
    require_package("onnx")
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its references divide by zero
        made: list[Any] = collect_testcases(None)
        for case in made:
            if len(case.model.graph.node) == 1:
                found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def attributes_of(node: Any) -> dict[str, Any]:
    from onnx.helper import get_attribute_value

    return {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}


def run(case: Any, operator: str) -> None:
    """Compare every output that the adapter gives with the one the package expects."""
    node = case.model.graph.node[0]
    names = [value.name for value in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        given = dict(zip(names, map(array, inputs), strict=True))
        arguments = [given[name] if name else None for name in node.input]
        results = OPERATORS[operator](attributes_of(node), *arguments)
        wanted = iter(outputs)
        expected = [next(wanted) if name else None for name in node.output]
        for result, value in zip(results, expected, strict=False):
            if value is not None:
                compare(case, np.asarray(result), array(value))


def array(value: Any) -> np.ndarray:
    """A value of a test, which holds types that NumPy lacks as messages."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def compare(case: Any, result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape, case.name
    assert result.dtype == expected.dtype, case.name
    rtol = max(case.rtol, 2.0**-6 if result.dtype.name == "bfloat16" else 0)  # it rounds each step
    if result.dtype.kind == "V":  # types of ml_dtypes
        result, expected = result.astype("f4"), expected.astype("f4")
    np.testing.assert_allclose(result, expected, rtol, case.atol, err_msg=case.name)


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_as_onnx(operator: str) -> None:
    passed, unsupported = 0, []
    for case in cases()[operator]:
        try:
            run(case, operator)
            passed += 1
        except Unsupported as error:
            unsupported.append(f"{case.name}: {error}")
        except Exception as error:
            error.add_note(case.name)
            raise
    assert passed > 0
    print(operator, passed, unsupported)
