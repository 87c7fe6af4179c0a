"""All that a device must do, on that device, as a report: `python -m tests.device_report cuda:0`.

Runs the conformance suite, the examples, the tests of devices and fuzzed kernels on one device, and
once more under each tool of compute-sanitizer, where it is installed, what cooperates or moves
memory. On Hopper random problems go through the kernels made for it, too. Writes what passed,
failed and was skipped, with reasons. `--bless` writes the list of conformance tests that must pass.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from tests.conformance.must_pass import name_of, write_list

FOLDERS = ("tests/conformance", "tests/examples", "tests/devices")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SANITIZED = (
    *("tests/conformance/test_cooperation.py", "tests/examples", "tests/devices/test_arrays.py"),
    *("tests/devices/test_cuda_intrinsics.py", "tests/devices/test_staging.py"),
    "tests/devices/test_small_hopper_kernels.py",
)
UNSEEN = {"racecheck": "tests/devices/test_small_hopper_kernels.py::test_gradients_of_attention"}
"""What a tool reports without a fault. Units that read a stage meet at a barrier, behind which one
of them releases it: racecheck does not see that the copy engine waits for all. (Where each unit
releases it, racecheck reports nothing, and where each does so before it reads, the same reads.)"""
PROBLEM_SECONDS = 120
"""How long random problems for the kernels of Hopper run."""


class Collected:
    """The outcomes of a run, by folder, as a plugin of pytest."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.reasons: Counter[str] = Counter()
        self.failed: list[str] = []
        self.passed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line of the table for each folder; a failed set-up counts as failed."""
        if report.when != "call" and report.passed:
            return
        folder = "/".join(report.nodeid.split("/")[:2])
        self.outcomes.setdefault(folder, Counter())[report.outcome] += 1
        if report.skipped:
            self.reasons[str(report.longrepr[-1]) if report.longrepr else ""] += 1  # type: ignore[index]
        elif report.failed:
            self.failed.append(report.nodeid)
        else:
            self.passed.append(report.nodeid)


def run_tests(device: str, jobs: int) -> Collected:
    """The tests whose names have the device, and those of its kind alone."""
    found = Collected()
    selected = selection(device)
    options = ["-q", "-W", "ignore", *(["-n", str(jobs)] if jobs > 1 else [])]
    pytest.main([*FOLDERS, *selected, *options], plugins=[found])
    return found


def selection(device: str) -> list[str]:
    """The options of pytest for the tests of a device's kind."""
    return ["-p", "tests.devices.selection", "--kind", device.partition(":")[0]]


def run_fuzz(device: str, count: int, jobs: int) -> str:
    """How many kernels ran of how many, and what was found."""
    command = [sys.executable, "-m", "tests.fuzz", "--device", device]
    command += ["--count", str(count), "--jobs", str(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    first = next((k for k, line in enumerate(lines) if " kernels ran from seed " in line), None)
    return done.stderr[-300:] if first is None else "; ".join(map(str.strip, lines[first:]))


def run_problems() -> str:
    """Random problems for the kernels of Hopper, and what was found."""
    command = [sys.executable, "-m", "tests.devices.random_problems"]
    command += ["--seconds", str(PROBLEM_SECONDS), "--start", str(time.time_ns() % 10**9)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "; ".join(done.stdout.strip().splitlines()) or done.stderr[-300:]


def run_sanitizer(device: str, tool: str) -> str:
    """The summary of one tool of compute-sanitizer."""
    command = ["compute-sanitizer", "--tool", tool, sys.executable, "-m", "pytest", "-q", "-n", "0"]
    command += [*SANITIZED, *selection(device)]
    command += ["--deselect", UNSEEN[tool]] if tool in UNSEEN else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    wanted = [line.lstrip("= ") for line in lines if "SUMMARY" in line or " passed" in line]
    return "; ".join(dict.fromkeys(wanted)) or f"exit {done.returncode}"


def report(device: str, found: Collected, extra: dict[str, str], seconds: float) -> str:
    """The report as a page."""
    d: Any = cp.device(device)
    target = d.target
    lines = [
        f"# {d.name}: {d.properties.name}",
        "",
        f"Target {target}: planes of {target.plane_dim}, cubes share {target.shared_bytes} bytes.",
        f"Features: {', '.join(sorted(target.features)) or 'none beyond the usual'}.",
        f"CubePy {cp.__version__}, Python {platform.python_version()}, {seconds:.0f} s.",
        "",
        "| tests | passed | failed | skipped |",
        "|---|---|---|---|",
    ]
    for folder, counts in sorted(found.outcomes.items()):
        cells = (counts[key] for key in ("passed", "failed", "skipped"))
        lines.append(f"| {folder} | {' | '.join(map(str, cells))} |")
    lines += ["", *(f"- {name}: {text}" for name, text in extra.items())]
    lines += [f"- failed: {name}" for name in found.failed]
    lines += [f"- skipped, {n} times: {reason}" for reason, n in found.reasons.most_common()]
    return "\n".join(lines) + "\n"


def parameters(name: str) -> list[str]:
    """What stands between the brackets of a test's name."""
    return name.partition("[")[2].rstrip("]").split("-")


def main() -> int:
    """Write the report; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.device_report")
    parser.add_argument("device")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fuzz", type=int, default=1000)
    parser.add_argument("--bless", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    found = run_tests(options.device, options.jobs)
    extra = {"fuzz": run_fuzz(options.device, options.fuzz, options.jobs)}
    if options.device.startswith("cuda") and cp.device(options.device).target.arch == "sm_90a":
        extra["problems"] = run_problems()
    if options.device.startswith("cuda") and shutil.which("compute-sanitizer"):
        extra |= {tool: run_sanitizer(options.device, tool) for tool in TOOLS}
    text = report(options.device, found, extra, time.monotonic() - began)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    if options.bless:
        passed = (n for n in found.passed if "conformance" in n and "listed" not in n)
        passed = (n for n in passed if options.device in parameters(n))
        write_list(options.device, {name_of(n, options.device) for n in passed})
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
