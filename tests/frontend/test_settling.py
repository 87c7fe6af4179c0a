"""What happens where the types of locals do not settle: no such kernel is known, but it is said."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend import locals as frontend_locals
from tests.guarded import Guarded


def test_types_that_never_settle_are_reported(monkeypatch: pytest.MonkeyPatch):
    @cp.cube
    def kernel(x, out):
        settled = x[0] * 2
        total = 0
        total += x[0]
        out[0] = total + settled

    monkeypatch.setattr(frontend_locals, "is_right", lambda local: local.name != "total")
    out = Guarded(1)
    with pytest.raises(cp.CompileError, match=r"E121: the type of `total`(.|\n)*cp.i32\(0\)") as e:
        kernel[1, 1](np.ones(1, np.uint8), out.array)
    assert out.is_untouched
    assert e.value.span is not None and e.value.span.function == "kernel"
