"""The soak: `python -m tests.fuzz --count 50000 [--start N] [--jobs J] [--device cuda:0]`.

LLVM at several levels is compared with the interpreter, or the named device is.
Stops at the first mismatch and prints the kernel with its seed; child processes keep the memory of
compiled code bounded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

CHUNK = 250


def main() -> int:
    """Run seeds start..start+count; 0 if all agree."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--start", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device")
    parser.add_argument("--chunk", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.chunk is not None:
        return run_chunk(options.start, options.chunk, options.device)
    return soak(options.start, options.count, options.jobs, options.device)


def soak(start: int, count: int, jobs: int, device: str | None) -> int:
    """Chunks of seeds in child processes, `jobs` at a time."""
    began, done, failed = time.monotonic(), 0, 0
    starts = range(start, start + count, CHUNK)
    with ThreadPoolExecutor(jobs) as pool:
        sizes = [min(CHUNK, start + count - s) for s in starts]
        for code, size in pool.map(lambda s, n: child(s, n, device), starts, sizes):
            failed += code != 0
            done += size
            if done % 5000 < CHUNK:
                print(
                    f"{done} kernels, {failed} chunks failed, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    print(f"{done} kernels from seed {start}: {failed} chunks with a mismatch")
    return 1 if failed else 0


def child(start: int, size: int, device: str | None) -> tuple[int, int]:
    """Run one chunk in a process of its own; its output is shown if it fails."""
    command = [sys.executable, "-m", "tests.fuzz", "--start", str(start), "--chunk", str(size)]
    command += [] if device is None else ["--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or device is not None:
        print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    return done.returncode, size


def run_chunk(start: int, size: int, device: str | None) -> int:
    """Check seeds one after the other."""
    import cubepy as cp
    from tests.fuzz.differential import check, check_device, generate, generate_for

    ran = 0
    target = cp.device(device).target if device is not None else None
    for seed in range(start, start + size):
        try:
            if device is not None and target is not None:
                ran += check_device(generate_for(seed, target), seed, device)
            else:
                check(generate(seed), seed, (0, 2, 3) if seed % 4 == 0 else (0, 3))
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error}")
            return 1
    if device is not None:
        print(f"{ran} of {size} kernels ran on {device}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
