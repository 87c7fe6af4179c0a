"""What `bench.gpu_profile` reads of the profiler's table."""

import pytest

from bench.gpu_profile import COUNTERS, Profile, add_counters, split

HEAD = '==PROF== Profiling\n"ID","Kernel Name","gpu__time_duration.sum",{},{}\n"","","ns",{}\n'
STALLS = (
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
)


def table(*rows: str) -> str:
    """A table with the counters in their order, then the two stalls."""
    counters = ",".join(f'"{name}.avg.pct_of_peak_sustained_elapsed"' for name in COUNTERS)
    units = ",".join('"%"' for _ in range(len(COUNTERS) + len(STALLS)))
    return HEAD.format(counters, ",".join(f'"{name}"' for name in STALLS), units) + "\n".join(rows)


def test_kernels_are_weighed_by_their_time():
    text = table(
        '"0","void spin_kernel(long)","500","0","0","0","0","0","0"',
        '"1","first","1,000,000","80","0","10","5","2.5","1"',
        '"2","second","3,000,000","40","4","50","25","0.5","4"',
        '"3","void spin_kernel(long)","500","0","0","0","0","0","0"',
        '"4","third","2,000","1","2","3","4","1","0"',
    )
    one, other = split(text)
    assert [row["Kernel Name"] for row in one] == ["first", "second"]
    assert [row["Kernel Name"] for row in other] == ["third"]
    made = Profile("work", "ours")
    add_counters(made, one)
    assert made.alone_ms == pytest.approx(4.0)
    assert (made.tensor, made.fma, made.dram, made.issue) == pytest.approx((50, 3, 40, 20))
    assert made.stalls == {"wait": 4.0, "barrier": 0.5}
