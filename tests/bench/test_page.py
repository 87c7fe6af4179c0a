"""The page about speed is that of the records; small layers of models are right."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.models.record import Record, Roofs, Row
from bench.page import DOCS, made
from bench.roofline import draw


@pytest.mark.parametrize("path", made(), ids=lambda path: path.name)
def test_the_page_and_its_pictures_are_current(path):
    assert path.read_text(encoding="utf-8") == made()[path], "run python -m bench.page"


def test_the_guide_shows_the_page():
    assert "guide/speed.md" in (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")


def test_pictures_hold_every_work_once():
    rows = [
        Row("BERT base", "product", "one", 10**9, 10**6, 1e-3, 2e-3, 0.0),
        Row("Llama 3 8B", "reduction", "two", 0, 10**6, 1e-5, 1e-6, 0.0),
        Row("ResNet-50", "pooling", "three", 0, 10**9, 1e-3, 1e-3, 0.0),
    ]
    record = Record({"gpu": "a fake"}, Roofs(100.0, 1e3), rows)
    names = [e.text for e in ElementTree.fromstring(draw(record)).iter() if e.tag.endswith("title")]
    assert names == ["BERT base, one: 2.00x", "Llama 3 8B, two: 0.10x", "ResNet-50, three: 1.00x"]
    assert draw(record) == draw(record)


@pytest.mark.optional("torch")
def test_layers_of_models_are_right(require_package):
    require_package("torch")
    from bench.models.__main__ import wrong

    assert wrong("cpu") == []
