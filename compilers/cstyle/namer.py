"""One namer: every identifier of the output is made here, ASCII, unique and not reserved."""

from __future__ import annotations

import re
import unicodedata

_LIKE_HELPERS = re.compile(r"lane_mask_\d+|.*(bool|bf16|index|[iuf]\d+(e\dm\d)?)x\d+.*")
"""Names as helpers for lines have them; see `lines`."""
_LIKE_SYSTEMS = re.compile(
    r"(cuda[A-Z]|CUDA|CU|cu[A-Z]|NV_|CLK_|CL_|cl_|clk_|intel_|image\d|enqueue_).*|.*_pipe(_.*)?"
)
"""Names as headers and built-in libraries have them by the hundred."""
_LONGEST = 100
"""Characters of a name; PoCL makes file names of kernels'."""


def clean(hint: str) -> str:
    """`hint` as an ASCII identifier without double or leading underscores; may be empty."""
    plain = "".join(_ascii(c) for c in hint)
    plain = re.sub(r"[^0-9A-Za-z]+", "_", plain).strip("_")
    return f"v{plain}" if plain[:1].isdigit() else plain


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    decomposed = unicodedata.normalize("NFKD", character)
    kept = "".join(c for c in decomposed if c.isascii() and c.isalnum())
    return kept or unicodedata.name(character, "x").split()[-1].lower()


class Namer:
    """Gives names that nothing else has; reserved words and names of helpers get a mark."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._reserved = reserved
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A new name like `hint`: itself, or with a number behind it."""
        base = clean(hint)[:_LONGEST].rstrip("_")
        if _LIKE_SYSTEMS.fullmatch(base):
            base = f"own_{base}"
        if _LIKE_HELPERS.fullmatch(base):
            base = ""
        if base and base not in self._reserved and base not in self._used:
            return self._take(base)
        base = base or "v"
        joint = "" if len(base) == 1 else "_"
        while True:
            count = self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}{joint}{count}"
            if name not in self._reserved and name not in self._used:
                return self._take(name)

    def _take(self, name: str) -> str:
        self._used.add(name)
        return name
