"""The forms of a launch that are measured compute the same."""

from __future__ import annotations

from bench import launch


def test_every_form_runs_and_is_measured():
    calls = launch.ways() | launch.tensors() | {"shapes": launch.Shapes(False)}
    found = launch.measured(calls, 2, 0.0005)
    assert found.keys() == calls.keys()
    assert all(len(times) == 2 and min(times) > 0 for times in found.values())


def test_shapes_are_many_and_of_one_size_on_average():
    many, one = launch.Shapes(False), launch.Shapes(True)
    assert len({x.shape for x, _, _ in many._arrays}) == launch.MANY
    elements = [sum(x.size for x, _, _ in shapes._arrays) for shapes in (many, one)]
    assert abs(elements[0] - elements[1]) < launch.MANY
