"""Times on a GPU as replays of captured graphs, so that no launch costs the host anything."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ROUNDS = 11
LONGEST = 4e-3
"""Seconds of one replay, about: a graph holds as many calls as that takes."""


def torch() -> Any:
    import torch

    return torch


def captured(calls: Sequence[Callable[[], Any]]) -> Any:
    """A graph of some calls, which have run before: modules can't be loaded in a capture."""
    cuda = torch().cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for call in calls[:2]:
            call()
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    graph.replay()
    cuda.synchronize()
    return graph


def replay_ms(graph: Any) -> float:
    """Milliseconds of one replay."""
    cuda = torch().cuda
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def medians(calls: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds of a call of each: medians over rounds in which they take turns."""
    count, graphs = 1, {name: captured([call]) for name, call in calls.items()}
    longest = max(map(replay_ms, graphs.values())) * 1e-3
    count = max(1, min(50, int(LONGEST / longest)))
    graphs = {name: captured([call] * count) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(replay_ms(graph) / count)
    return {name: statistics.median(found) for name, found in times.items()}
