"""Known miscompilations: what the kernels should give, what is remembered, who is warned.

`pytest tests/devices/test_miscompilations.py` on a machine with a GPU of NVIDIA tests its compiler.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from cubepy.cache.entry import Entry
from cubepy.cache.store import named_store
from cubepy.cli.doctor import examine as examine_installation
from cubepy.jit import miscompilations
from cubepy.jit.miscompiled_kernels import CASES
from cubepy.runtimes.registry import find_device
from tests.optional import require_package

NONE = dict.fromkeys(CASES, 0)


class Gpu:
    """What the memory of results asks of a device."""

    name = "gpu:7"
    driver_version = "13.0"
    target = cp.device("cpu").target

    def __init__(self) -> None:
        from cubepy.targets import parse_target

        self.target = parse_target("cuda:sm_90a")


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(miscompilations, "_examined", set[str]())
    monkeypatch.setattr(miscompilations.toolchain, "version", lambda: "13.0")
    with cp.settings(cache_dir=str(tmp_path), self_test=True):
        yield Gpu()


def results(monkeypatch: pytest.MonkeyPatch, found: dict[str, int]) -> list[str]:
    asked: list[str] = []

    def examine(device: Any) -> dict[str, int]:
        asked.append(device.name)
        return found

    monkeypatch.setattr(miscompilations, "examine", examine)
    return asked


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_the_expected_results_are_those_of_the_kernels(device: str):
    assert miscompilations.examine(find_device(device)) == NONE


@pytest.mark.parametrize("device", ["pocl", "metal_text"])
def test_text_gives_them_too(device: str, require_text_device: Callable[[str], None]):
    require_text_device(device)
    assert miscompilations.examine(find_device(device)) == NONE


def test_this_gpu_gets_them_right(cuda: str):
    """The test of a machine: compiled by the NVRTC that is here, run by the driver that is here."""
    assert miscompilations.examine(find_device(cuda)) == NONE


def test_a_result_is_remembered_for_its_versions(gpu: Any, monkeypatch: pytest.MonkeyPatch):
    asked = results(monkeypatch, NONE)
    assert miscompilations.remembered(gpu) is None
    assert miscompilations.examined(gpu) == miscompilations.examined(gpu) == NONE
    assert asked == ["gpu:7"] and miscompilations.remembered(gpu) == NONE
    monkeypatch.setattr(miscompilations.toolchain, "version", lambda: "13.5")
    assert miscompilations.remembered(gpu) is None


@pytest.mark.parametrize("wrong", [None, [1], "{}", {"a": "1"}, {"a": True}])
def test_a_doubtful_entry_is_tested_again(gpu: Any, wrong: Any, monkeypatch: pytest.MonkeyPatch):
    asked = results(monkeypatch, NONE)
    miscompilations.examined(gpu)
    ((_, entry),) = named_store().entries()
    assert isinstance(entry, Entry)
    named_store().put(Entry(entry.key, {**entry.header, "wrong": wrong}, b""))
    assert miscompilations.examined(gpu) == NONE and len(asked) == 2


def test_wrong_results_warn_once(gpu: Any, monkeypatch: pytest.MonkeyPatch):
    results(monkeypatch, {**NONE, "three-way minimum": 17})
    with pytest.warns(RuntimeWarning, match=r"NVRTC 13\.0.*sm_90a.*three-way minimum"):
        miscompilations.examine_once(gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        miscompilations.examine_once(gpu)


def test_torch_without_cuda_is_no_hindrance(gpu: Any, monkeypatch: pytest.MonkeyPatch):
    require_package("torch")
    asked = results(monkeypatch, NONE)
    miscompilations.examine_once(gpu)
    assert asked == ["gpu:7"]


def test_a_folder_that_cannot_be_written_is_no_error(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    results(monkeypatch, NONE)
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings(), cp.settings(cache_dir=str(tmp_path / "file")):
        warnings.simplefilter("ignore")  # the store says it once in a process
        assert miscompilations.examined(gpu) == NONE


def test_it_can_be_switched_off(gpu: Any, monkeypatch: pytest.MonkeyPatch):
    asked = results(monkeypatch, NONE)
    with cp.settings(self_test=False):
        miscompilations.examine_once(gpu)
    assert not asked


def test_doctor_says_what_it_found():
    found = examine_installation()["miscompilations"]
    gpus = [d.name for d in miscompilations_devices()]
    assert [row["device"] for row in found] == gpus


def miscompilations_devices() -> list[Any]:
    from cubepy.runtimes.registry import devices

    return [d for d in devices() if d.target.kind == "cuda"]
