"""Units as lanes: bit-equal to the interpreter and to units one by one, and no access too many."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.passes.vectorise import Vectorised, vectorise

ABORTED = 901312
"""Seeds of a batch of generated expressions."""
UNITS = 64
"""Of a cube, so that all lanes of the widest lines are used."""


@cp.cube
def nested(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    i = cp.ABSOLUTE_POS
    if i >= out.size:
        return
    total, outer = cp.i32(0), cp.i32(0)
    while outer < x[i % x.size] % 7:
        outer += 1
        if (x[i % x.size] + outer) % 5 == 0:
            continue
        for k in range(outer * 2 - 1, x[i % x.size] % 11):
            if k % 3 == 1:
                continue
            if total > 90:
                break
            total += cp.i32(k) * outer
        else:
            total += 1
        if total > 150:
            break
        if total == 77:
            out[i] = -7
            return
    else:
        total = -total
    out[i] = total


@cp.cube
def swaps(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Carried values change places; the results of a loop are those of each lane's last trip."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        a, b, n = x[i % x.size] % 13, cp.i32(1), cp.i32(0)
        for k in range(40):
            a, b = b, (a + b) % 101
            n = cp.i32(k)
            if a == x[i % x.size] % 17:
                break
        out[i] = a * 10000 + b * 100 + n


@cp.cube
def searches(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Gathers up to both ends of `x`, which is sorted."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        low, high = cp.i32(0), cp.i32(x.size)
        key = cp.i32(i * 3)
        while low < high:
            middle = (low + high) // 2
            if x[middle] < key:
                low = middle + 1
            else:
                high = middle
        out[i] = low
        for k in range(low, x.size, 3):
            out[i] += x[k]


@cp.cube
def own_arrays(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    i = cp.ABSOLUTE_POS
    held = cp.local(8, cp.i32)
    for k in range(8):
        held[k] = cp.i32(k) * x[i % x.size]
    for _ in range(x[i % x.size] % 6):
        held[x[(i * 5) % x.size] % 8] += held[3]
    s = cp.i32(0)
    for k in range(8):
        s = s * 31 + held[(k + x[i % x.size]) % 8]
    if i < out.size:
        out[i] = s


@cp.cube
def own_places(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Places of own arrays that all units share, written by some: others keep what they have."""
    i = cp.ABSOLUTE_POS
    early = cp.local(3, cp.i32)
    for k in range(3):
        early[k] = cp.i32(k)
    if i < out.size:
        late = cp.local(5, cp.i32)
        for k in range(5):
            late[k] = cp.i32(k) + x[i % x.size]
            early[k % 3] += late[k]
        for k in range(9):
            if (x[i % x.size] + k) % 3 == 0:
                late[k % 5] += early[2]
                if late[1] % 2 == 0:
                    continue
                early[1] = late[k % 5] - k
            if late[3] > 300:
                break
            late[4] ^= early[k % 3]
        out[i] = late[0] + late[1] * 3 + late[2] * 5 + late[3] * 7 + late[4] * 11 + early[1]


@cp.cube
def meets(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Units that return before barriers, shared memory in another order, a uniform loop."""
    i, t = cp.ABSOLUTE_POS, cp.UNIT_POS
    held = cp.shared(UNITS, cp.i32)
    held[t] = cp.i32(t) * 3 + x[i % x.size]
    cp.sync_cube()
    if i >= out.size:
        return
    s = cp.i32(0)
    for k in range(3):
        cp.sync_cube()
        s += held[(t * 7 + k) % UNITS]
        cp.sync_cube()
        if x[i % x.size] % 2 == 0:
            held[t] += cp.i32(k)
    out[i] = s


@cp.cube
def rows(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Rows and columns of units, also such as are shorter than a line; a step down."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        row, column = i // x.shape[0], i % x.shape[0]
        s = cp.i32(row) * 1000
        for k in range(column, -1, -1):
            s += x[k]
        for k in range(i, i + 3):
            s ^= x[k % x.size]
        out[i] = s


@cp.cube
def one_by_one(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    i = cp.ABSOLUTE_POS
    k = cp.i32(0)
    while k < x[i % x.size] % 5:
        old = cp.atomic.add(out, (i + k) % 8, 1)
        if old > 1000:
            break
        k += 1
    if i == 3:
        out[9] = cp.i32(i) + k
    if x[i % x.size] == 5 and i < out.size - 16:
        out[16 + i] = x[(x.size - 1 - i) % x.size]


@cp.cube
def wide(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    """Types of one to eight bytes in one kernel."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        a, b, c = cp.i8(x[i % x.size]), cp.i64(x[i % x.size]), cp.f64(0.0)
        while b != 0 and c < 1e9:
            a += cp.i8(3)
            c += cp.f64(b) * 0.3 + cp.f64(a)
            b = b // 3 if b > 0 else b + 1
        out[i] = cp.i32(c) + cp.i32(a)


KERNELS = [nested, swaps, searches, own_arrays, own_places, meets, rows, one_by_one, wide]


def _guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends where a page without access begins."""
    page = mmap.PAGESIZE
    whole = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, whole + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + whole), page, 0) == 0
    start = whole - array.nbytes
    view = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
    view[...] = array
    return view


def _run(kernel: Any, x: np.ndarray, count: int, units: int, **options: Any) -> np.ndarray:
    out = _guarded(np.full(count, -1, np.int32))
    cubes = -(-count // units)
    kernel.configure(**options)[cubes, units](_guarded(x), out)
    return out.copy()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize(("count", "extent"), [(150, 37), (1, 1)])
def test_lanes_are_units(kernel: Any, count: int, extent: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.integers(0, 60, extent).astype(np.int32)
    if kernel is searches:
        x = np.sort(x * 4)
    expected = _run(kernel, x, count + 32, UNITS, device="interpreter")
    np.testing.assert_array_equal(_run(kernel, x, count + 32, UNITS, vectorise=False), expected)
    np.testing.assert_array_equal(_run(kernel, x, count + 32, UNITS, vectorise=True), expected)


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[Vectorised]:
    from cubepy.passes import vectorise as module

    found: list[Vectorised] = []

    def spy(*given: Any) -> Vectorised:
        found.append(vectorise(*given))
        return found[-1]

    monkeypatch.setattr(module, "vectorise", spy)
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_all_of_them_become_lanes(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the comparison above compares something; a cube's row decides how many lanes."""
    found = _spied(monkeypatch)
    launcher = kernel.configure(vectorise=True)[4, 24]
    for target, lanes in (("cpu:x86-64-v3", 8), ("cpu:x86-64-v4", 8), ("cpu:apple-m1", 4)):
        text = launcher.inspect("i32[37]", "i32[97]", target=target, stage="asm")
        if kernel is wide and target != "cpu:x86-64-v4":
            lanes //= 2  # of eight bytes
        assert found[-1].lanes == lanes, found[-1].remarks
        assert text


def test_few_wide_values_do_not_halve_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sine of a large angle is reduced in 64 bits."""

    @cp.cube
    def kernel(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < x.size:
            v, n = x[i], cp.f32(0)
            while v > 0.5:
                v = cp.sin(v * 3) * v * 0.9 + n / (n + 1) - (v - n) * (v - 2 * n)
                n = cp.sqrt(n * v + 1) + v * v * 0.1
                v = min(v, n * 0.7 + v * 0.2) + max(n - 3, v * 0.1) * (n - v) / (n * n + 1)
            out[i] = v + n

    found = _spied(monkeypatch)
    launcher = kernel.configure(vectorise=True)[2, 64]
    launcher.inspect("f32[128]", "f32[128]", target="cpu:x86-64-v3", stage="llvm")
    assert found[-1].lanes == 8, found[-1].remarks


def test_own_arrays_are_accessed_without_masks() -> None:
    """Masked stores to the stack are slow with AVX2, and loads do not see them before they end."""

    @cp.cube
    def kernel(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            held = cp.local(33, cp.f32)
            for k in range(33):
                held[k] = x[i] * cp.f32(k)
            for step in range(32, 0, -1):
                for k in range(step):
                    held[k] += held[k + 1] * 0.5
            out[i] = held[0]

    launcher = kernel.configure(vectorise=True)[4, 64]
    text = launcher.inspect("f32[97]", "f32[97]", target="cpu:x86-64-v3", stage="llvm")
    stores = [line for line in text.splitlines() if "call" in line and "masked.store" in line]
    assert len(stores) == 1, stores  # of `out`


def test_gathers_are_instructions_where_they_are_fast() -> None:
    launcher = searches.configure(vectorise=True)[4, 64]
    text = launcher.inspect("i32[37]", "i32[97]", target="cpu:x86-64-v4", stage="asm")
    assert "vpgather" in text


def test_lines_that_aborted_the_process() -> None:
    """LLVM's pass that combines vectors failed an assertion on this kernel."""
    from tests.fuzz.typed import oracle

    seeds = range(ABORTED, ABORTED + oracle.BATCH)
    oracle.check(seeds, (oracle.LANES,))


def test_prints_come_unit_by_unit(capfd: pytest.CaptureFixture[str]) -> None:
    @cp.cube
    def kernel(x: cp.Tensor[cp.i32]):
        i = cp.ABSOLUTE_POS
        while x[i] > 2:
            x[i] -= 1
            if x[i] == 3:
                print(f"{i} {x[i]}")

    x = np.arange(16, dtype=np.int32)
    kernel.configure(vectorise=True)[1, 16](x)
    cp.synchronize()
    printed = capfd.readouterr().out.split("\n")[:-1]
    assert sorted(printed) == sorted(f"{i} 3" for i in range(4, 16))


def test_checks_name_the_unit() -> None:
    @cp.cube
    def kernel(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
        i = cp.ABSOLUTE_POS
        k = cp.i32(0)
        while k < x[i]:
            k += 1
            out[i + k * 2] = k

    x = np.zeros(32, np.int32)
    x[21] = 7
    for vectorised in (False, True):
        out = np.zeros(33, np.int32)
        with pytest.raises(cp.OutOfBoundsError) as caught:
            kernel.configure(vectorise=vectorised, checked=True)[2, 16](x, out)
            cp.synchronize()
        assert (caught.value.index, caught.value.axis) == (33, 0)
        assert "unit (5, 0, 0) of cube 1" in str(caught.value)
        assert out[23] == 1 and out[31] == 5


def test_the_choice_is_checked() -> None:
    with pytest.raises(cp.LaunchError, match="vectorise"):
        nested.configure(vectorise="yes")  # pyright: ignore[reportArgumentType]


@cp.cube
def counts_with_a_lock(lock: cp.Tensor[cp.i32], out: cp.Tensor[cp.i64]):
    while cp.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    out[0] += 1
    cp.sync_storage()
    cp.atomic.store(lock, 0, 0)


@cp.cube
def takes_turns(turn: cp.Tensor[cp.i32], out: cp.Tensor[cp.i64]):
    while True:
        if cp.atomic.load(turn, 0) == cp.UNIT_POS:
            break
    out[0] = out[0] * 3 % 1009 + cp.UNIT_POS
    cp.sync_storage()
    cp.atomic.add(turn, 0, 1)


@cp.cube
def ends_alike(x: cp.Tensor[cp.i32], sums: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        n, total = 0, 0
        while True:
            v = cp.i32(x.shape[0])
            if n >= 3:
                break
            n += 1
            v = x[i] * n
            total += v
        sums[i], out[i] = total, v


@pytest.mark.parametrize("choice", [True, False, "auto"])
def test_a_local_that_differs_in_a_loop_and_not_behind_it(choice: bool | str) -> None:
    x = np.arange(100, dtype=np.int32)
    sums, out = np.zeros_like(x), np.zeros_like(x)
    ends_alike.configure(vectorise=choice).over(x)(x, sums, out)
    assert (sums == 6 * x).all()
    assert (out == 100).all()


def test_loops_that_wait_for_other_units_stay_scalar() -> None:
    """As lanes they would wait for themselves."""
    for kernel, cubes in ((counts_with_a_lock, 8), (takes_turns, 1)):
        launcher = kernel[cubes, 32]
        remarks = launcher.inspect("i32[1]", "i64[1]", target="cpu:x86-64-v3", stage="remarks")
        assert "may wait for another unit" in remarks
    count, last = np.zeros(1, np.int64), np.zeros(1, np.int64)
    counts_with_a_lock[8, 32](np.zeros(1, np.int32), count)
    takes_turns[1, 32](np.zeros(1, np.int32), last)
    expected = 0
    for unit in range(32):
        expected = expected * 3 % 1009 + unit
    assert (count[0], last[0]) == (256, expected)


def test_auto_takes_loops_of_units_alone() -> None:
    """Units without loops are LLVM's, and loops that mostly gather stay scalar."""

    @cp.cube
    def plain(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i % x.size] * 3 + 1

    @cp.cube
    def follows(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            k = x[i % x.size]
            while k > 0:
                k = x[k]
            out[i] = k

    def remarks(kernel: Any, **options: Any) -> str:
        launcher = kernel.configure(**options)[4, 64]
        return launcher.inspect("i32[37]", "i32[97]", target="cpu:x86-64-v3", stage="remarks")

    assert "lines of 8" in remarks(nested)
    assert "LLVM" in remarks(plain) and "units are lanes" not in remarks(plain)
    assert "mostly gathers" in remarks(follows)
    assert "lines of 8" in remarks(plain, vectorise=True)
    assert "vectorise=False asks" in remarks(nested, vectorise=False)


def test_lookups_count_as_gathers():
    """A table that is captured is no faster than one that is an argument."""
    table = np.arange(256, dtype=np.uint32) * np.uint32(2654435761)

    @cp.cube
    def captured(x, lengths, out: cp.Tensor[cp.u32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            c = cp.u32(1)
            for k in range(lengths[i]):
                c = table[(c ^ x[i, k]) & 0xFF] ^ (c >> 8)
            out[i] = c

    @cp.cube
    def given(x, lengths, t, out: cp.Tensor[cp.u32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            c = cp.u32(1)
            for k in range(lengths[i]):
                c = t[(c ^ x[i, k]) & 0xFF] ^ (c >> 8)
            out[i] = c

    rng = np.random.default_rng(6)
    x, lengths = rng.integers(0, 256, (37, 61), dtype=np.uint8), rng.integers(0, 62, 37)
    found = [np.zeros(37, np.uint32) for _ in range(3)]
    captured.over(37)(x, lengths, found[0])
    captured.configure(vectorise=True).over(37)(x, lengths, found[1])
    given.over(37)(x, lengths, table, found[2])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    remarks = captured[1, 64].inspect(x, lengths, found[0], stage="remarks")
    assert "mostly gathers" in remarks


def test_units_that_read_rows_of_integers_stay_scalar():
    """Where they do little with each; long work, tables and floats become lanes."""

    @cp.cube
    def hashed(x, out: cp.Tensor[cp.u64]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            h = cp.u64(7)
            for k in range(x.shape[1]):
                h = (h ^ x[i, k]) * 31
            out[i] = h

    @cp.cube
    def worked(x, out: cp.Tensor[cp.u64]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            h = cp.u64(7)
            for k in range(x.shape[1]):
                for shift in cp.unroll((3, 5, 7, 11, 13, 17, 19)):
                    h = (h ^ x[i, k]) * 31 + (h >> shift)
            out[i] = h

    @cp.cube
    def added(x, out: cp.Tensor[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            total = cp.f32(0)
            for k in range(x.shape[1]):
                total += x[i, k]
            out[i] = total

    def remarks(kernel: Any, x: str, out: str) -> str:
        return kernel[4, 64].inspect(x, out, target="cpu:x86-64-v4", stage="remarks")

    assert "rows of integers" in remarks(hashed, "u8[64,40]", "u64[64]")
    assert "lines of 8" in remarks(worked, "u8[64,40]", "u64[64]")
    assert "lines of 16" in remarks(added, "f32[64,40]", "f32[64]")
    x, found = np.random.default_rng(5).integers(0, 256, (77, 40)).astype(np.uint8), []
    for choice in ("auto", True, False):
        found.append(np.zeros(77, np.uint64))
        hashed.configure(vectorise=choice).over(77)(x, found[-1])
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


SQUARES = np.arange(100, dtype=np.int16) ** 2


@cp.cube
def looks_up(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        total = cp.i32(0)
        for k in range(3):
            if x[i] > k - 2 and x[i] < 97 - k:
                total += SQUARES[cp.i32(x[i]) + k + 2]
        o[i] = total


def test_lanes_that_are_off_look_up_nothing():
    """Their indices lie far outside of the table."""
    x = np.random.default_rng().integers(-(2**31), 2**31, 999).astype(np.int32)
    x[::3] = np.arange(-20, 313)
    o = np.full_like(x, -1)
    looks_up.configure(vectorise=True).over(o)(x, o)
    expected = np.zeros_like(x)
    for k in range(3):
        on = (x > k - 2) & (x < 97 - k)
        expected[on] += SQUARES[x[on] + k + 2]
    assert (o == expected).all()
