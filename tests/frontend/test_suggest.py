"""Names that look like others: which one is meant."""

import pytest

from cubepy.frontend.suggest import closest, edits

DISTANCES = [
    ("", "", 0),
    ("", "abc", 3),
    ("shape", "shape", 0),
    ("shpae", "shape", 1),
    ("shpae", "space", 2),
    ("abcd", "badc", 2),
    ("ca", "abc", 3),  # no part is edited twice
    ("kitten", "sitting", 3),
]


@pytest.mark.parametrize("a, b, distance", DISTANCES)
def test_edits(a: str, b: str, distance: int):
    assert edits(a, b) == edits(b, a) == distance


@pytest.mark.parametrize(
    "name, known, meant",
    [
        ("shpae", ("space", "shape"), "shape"),
        ("chekced", ("checked", "device"), "checked"),
        ("f31", ("f16", "f64", "f32"), "f32"),
        ("foat32", ("int32", "float32", "float64"), "float32"),
    ],
)
def test_the_closest_has_the_fewest_edits(name: str, known: tuple[str, ...], meant: str):
    assert closest(name, known) == f"did you mean `{meant}`?"


def test_nothing_is_close():
    assert closest("zzz", ("shape", "space")) == closest("shape", ()) == ""
