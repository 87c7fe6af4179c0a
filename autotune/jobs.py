"""Sweeps: many calls to be tuned, one after the other or by many workers.

A job is plain data. A worker keeps what it measures in a store of its own and gives it back as
rows, which are added to the store of whoever asked. Workers are those of Dask's `distributed`: it
survives workers that die (their jobs go to others), runs on one host or many, and needs no server
beside it. Ray would do the same with thirty times as much to install.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from cubepy.array.creation import asarray
from cubepy.array.memory import numpy_dtype
from cubepy.autotune.autotuned import Autotuned, AutotunedKernel
from cubepy.autotune.records import Rows, find_records, forgotten
from cubepy.autotune.session import FULL, tuning
from cubepy.config import VISIBLE_GPUS, settings, visible_gpus
from cubepy.errors import Error, fail
from cubepy.jit.kernel import CubeKernel
from cubepy.lang.annotations import spec
from cubepy.record import dataclass
from cubepy.runtimes.registry import devices

SEED = 0
TRIES = 3
"""Workers that may die with a job before it is given up."""


@dataclass(frozen=True, slots=True)
class Job:
    """A call to be tuned. `function`: "module:name" or "FILE.py:name"; `arguments`: text of
    specifications such as "f32[512,512]", or numbers, by parameter; `device`: where arrays lie."""

    function: str
    arguments: tuple[tuple[str, Any], ...]
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Sweep:
    """How jobs are tuned: as `tuning` takes it."""

    level: str = FULL
    budget_s: float | None = None
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a job: `error` is empty where it went well; `rows`: what was measured."""

    job: Job
    error: str
    rows: Rows


def argument(value: Any, device: str, rng: np.random.Generator) -> Any:
    """An argument: a specification becomes an array of normal numbers, or of small integers."""
    if not isinstance(value, str):
        return value
    found = spec(value)
    dtype = numpy_dtype(found.dtype)
    shape = tuple(64 if n is None else n for n in found.shape or ())
    if dtype.kind in "iu":
        array = rng.integers(0, 8, shape).astype(dtype)
    elif dtype.kind == "b":
        array = rng.integers(0, 2, shape).astype(dtype)
    else:
        array = rng.standard_normal(shape).astype(dtype)
    return array if device == "cpu" else asarray(array, device=device)


def run_job(job: Job, sweep: Sweep, load: Callable[[str], Any] | None = None) -> None:
    """Call the function of a job under `tuning`; raises what it raises."""
    function = (load or _load)(job.function)
    if isinstance(function, CubeKernel):
        hint = "write @cp.autotuned(space=...) above @cp.cube, or name a function that is autotuned"
        reason = "it is not @cp.autotuned: there is nothing to search"
        raise fail("E602", function=function.__name__, reason=reason, suggestion=hint)
    _refuse_unbound(function, dict(job.arguments))
    rng = np.random.default_rng(sweep.seed)
    given = {name: argument(value, job.device, rng) for name, value in job.arguments}
    with tuning(level=sweep.level, budget_s=sweep.budget_s, seed=sweep.seed):
        function(**given)


def _refuse_unbound(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """E602 for arguments that are missing or that the function does not have."""
    if isinstance(function, AutotunedKernel):
        return  # it needs a grid, which its call says
    signature = inspect.signature(function)
    chosen = {"config": None} if isinstance(function, Autotuned) else {}
    try:
        signature.bind(**{**given, **chosen})
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        takes = f"it takes {', '.join(p for p in signature.parameters if p not in chosen)}"
        raise fail("E602", function=name, reason=error, suggestion=takes) from None


def _load(reference: str) -> Any:
    module, _, name = reference.rpartition(":")
    made = _from_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    for part in name.split("."):
        made = getattr(made, part)
    return made


def _from_file(path: Path) -> Any:
    """A file as a module of the name that it has for who imports it: picks are found by that."""
    name, folder = path.stem, path.resolve().parent
    while (folder / "__init__.py").is_file():
        name, folder = f"{folder.name}.{name}", folder.parent
    kept = sys.modules.get(name)
    if kept is not None and path.samefile(getattr(kept, "__file__", None) or os.devnull):
        return kept
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def worker(job: Job, sweep: Sweep) -> Done:
    """Tune one job with a store of its own, in this process."""
    with _own_store():
        try:
            run_job(job, sweep)
        except Exception as error:  # files of users raise anything
            return Done(job, f"{type(error).__name__}: {error}", {})
        return Done(job, "", find_records().rows())


@contextmanager
def _own_store() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="cubepy-tuning-") as folder,
        forgotten(),
        settings(cache=True, cache_dir=os.path.realpath(folder)),
    ):
        yield


def run_all(
    jobs: Sequence[Job], sweep: Sweep, report: Callable[[Done], None] = lambda done: None
) -> list[Done]:
    """Tune jobs one after the other in this process, into the store of the settings in force."""
    found: list[Done] = []
    for job in jobs:
        try:
            run_job(job, sweep)
            done = Done(job, "", {})
        except Exception as error:  # files of users raise anything
            done = Done(job, f"{type(error).__name__}: {error}", {})
        found.append(done)
        report(done)
    return found


def run_on_workers(
    jobs: Sequence[Job],
    sweep: Sweep,
    client: Any,
    report: Callable[[Done], None] = lambda done: None,
) -> list[Done]:
    """Tune jobs on the workers of a Dask client; add what they measured to the store in force.

    A job whose worker dies goes to another, `TRIES` times. Raises nothing for jobs that fail.
    """
    from distributed import as_completed

    futures = client.map(
        worker, list(jobs), sweep=sweep, pure=False, retries=TRIES, key="cubepy-tuning"
    )
    places = {future.key: job for future, job in zip(futures, jobs, strict=True)}
    found: list[Done] = []
    for future in as_completed(futures):
        error = future.exception()
        job = places[future.key]
        done = future.result() if error is None else Done(job, f"{error!r}", {})
        find_records().add(done.rows)
        found.append(done)
        report(done)
    return found


@contextmanager
def workers(where: str, gpus: Sequence[str] | None = None) -> Iterator[Any]:
    """A client of Dask's workers: a number of new processes of this host, or the address of a
    scheduler that runs already. New ones share out the GPUs of this host: each sees one, as
    "cuda:0". `gpus`: what the driver calls these. `ImportError` where `distributed` is not
    installed."""
    from distributed import Client, Nanny, Scheduler, SpecCluster

    if not where.isdigit():
        with Client(where) as client:
            yield client
        return
    found = visible_devices() if gpus is None else gpus
    specs = {
        k: {"cls": Nanny, "options": {"nthreads": 1, "env": environment}}
        for k, environment in enumerate(environments(int(where), found))
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0}}
    with SpecCluster(workers=specs, scheduler=scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(int(where))
        yield client


def environments(count: int, gpus: Sequence[str]) -> list[dict[str, str]]:
    """The variables of so many workers of one host: two that share its GPUs have different ones,
    as far as there are enough."""
    if not gpus:
        return [{} for _ in range(count)]
    return [{VISIBLE_GPUS: gpus[k % len(gpus)]} for k in range(count)]


def visible_devices() -> list[str]:
    """The GPUs of this host that this process may use, by the names that the driver takes."""
    chosen = visible_gpus()
    if chosen is not None:
        return chosen
    return [d.name.partition(":")[2] for d in devices() if d.name.startswith("cuda:")]


def jobs_of(rows: Any) -> list[Job]:
    """Jobs from JSON: a list of objects with "function", "arguments" and maybe "device".

    ValueError, which says what is wrong with which of them, counted from 0.
    """
    if not isinstance(rows, list):
        raise ValueError(f"a list of objects is expected, not {_kind_of(rows)}")
    if not rows:
        raise ValueError("the list is empty: there is nothing to tune")
    return [_job_of(number, row) for number, row in enumerate(rows)]


def _job_of(number: int, row: Any) -> Job:
    if not isinstance(row, Mapping):
        raise ValueError(f"job {number} is {_kind_of(row)}; an object is expected")
    function, arguments = row.get("function"), row.get("arguments")
    if not isinstance(function, str) or not isinstance(arguments, Mapping):
        raise ValueError(f"job {number} has no function or no arguments")
    for name, value in arguments.items():
        if fault := fault_of_argument(value):
            raise ValueError(f"job {number}: `{name}`: {fault}")
    return Job(function, tuple(arguments.items()), str(row.get("device", "cpu")))


def _kind_of(value: Any) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", NoneType: "null"}
    return names.get(type(value), "a number")


def fault_of_argument(value: Any) -> str:
    """Why an argument of a job says nothing that can be made; empty where it does."""
    if not isinstance(value, str):
        return ""
    try:
        shape = spec(value).shape or ()
    except Error:
        return f"{value!r} is no specification, such as f32[512,512] or f32, and no number"
    return f"`?` of {value!r} has no size; write numbers for all extents" if None in shape else ""
