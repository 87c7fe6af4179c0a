"""`@cp.autotuned` on launchers and kernels: right results, untouched inputs, remembered picks."""

from __future__ import annotations

import gc
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import autotuned, isolated, records, session
from cubepy.autotune.records import find_records

pytestmark = pytest.mark.usefixtures("store")
quick: Any = {"level": "quick", "budget_s": 20.0, "limit_s": 10.0}


@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2


@cp.cube
def accumulate(x, out, wrong: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] += x.flat[i] if not wrong else x.flat[i] * 2


@cp.cube
def nothing(out):
    if cp.ABSOLUTE_POS < 0:
        out.flat[0] = 0


def scaled_by(space: Any, **options: Any) -> Any:
    @cp.autotuned(space=space, **options)
    def scaled(x, out, *, config):
        scale.over(-(-out.size // config["n"]))(x, out, config["n"])

    return scaled


def arrays(shape: Any = (300,), dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    return x, np.zeros_like(x)


def measured(f: Any) -> dict[str, str]:
    """What is known of the configurations, over all problems."""
    found = find_records()
    return {
        c: m.status
        for key in found.measured_keys()
        if key.kernel == f._name
        for c, m in found.measurements(key).items()
    }


def test_a_search_gives_the_right_result_and_is_remembered():
    scaled, (x, out) = scaled_by({"n": (1, 4)}), arrays()
    with cp.tuning(**quick):
        scaled(x, out)
    np.testing.assert_array_equal(out, x * 2)
    assert measured(scaled) == {'{"n":1}': "ok", '{"n":4}': "ok"}
    pick = scaled.pick(x, out)
    with records.forgotten(), cp.tuning(level="quick"):
        again = scaled_by({"n": (1, 4)})
        assert again.pick(x, out) == pick
        assert len(find_records().searches(find_records().measured_keys()[0])) == 1


def test_off_takes_the_first_and_measures_nothing(store: Path):
    scaled, (x, out) = scaled_by({"n": (4, 1)}), arrays()
    with cp.tuning(level="off"):
        assert scaled.pick(x, out) == {"n": 4}
    assert list(store.iterdir()) == []


def test_adding_a_configuration_measures_that_one_and_an_edit_all():
    x, out = arrays()
    with cp.tuning(**quick):
        scaled_by({"n": (1, 2, 16, 32)})(x, out)
        more = scaled_by({"n": (1, 2, 16, 32, 4, 8)})
        more(x, out)
    (key,) = find_records().measured_keys()
    searches = find_records().searches(key)
    looked_at = {m["k"] for m in searches[1]["log"] if m["do"] == "checked"}
    assert {4, 5} <= looked_at  # beside the reference and the best so far
    assert 0 in looked_at and len(looked_at) <= 4

    @cp.autotuned(space={"n": (1, 2)})
    def scaled(x, out, *, config):
        scale.over(-(-out.size // config["n"]))(x, out, config["n"] * 1)  # edited

    scaled._name = more._name
    with cp.tuning(**quick):
        scaled(x, out)
    assert len(find_records().measured_keys()) == 2


TUNED = """
import cubepy as cp

@cp.cube
def scale(x, out, n: cp.Comptime):
    out.flat[cp.ABSOLUTE_POS] = x.flat[cp.ABSOLUTE_POS] * 2

@cp.autotuned(space={SPACE})
@cp.cube
def twice(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2

@cp.autotuned(space={SPACE})
def doubled(x, out, *, config):
    scale.over(-(-out.size // config["n"]))(x, out, config["n"])
"""


def test_a_space_that_is_written_longer_is_no_edit(tmp_path: Path):
    """Of the source alone; what a decorator says is not part of it."""
    spaces = ({"n": (1, 2)}, {"n": (1, 2, 4)}, {"n": (1, 2)})
    sources = []
    for number, space in enumerate(spaces):
        text = TUNED.replace("{SPACE}", repr(space)).replace(
            "* 2", "* 2.0" if number == 2 else "* 2"
        )
        path = tmp_path / f"tuned{number}.py"
        path.write_text(text, encoding="utf-8")
        found: dict[str, Any] = {"__name__": "tuned"}
        exec(compile(text, str(path), "exec"), found)
        sources.append((found["twice"]._hash(), found["doubled"]._hash()))
    first, longer, edited = sources
    assert first == longer and not set(first) & set(edited)


IN_PLACE = [((n,), t) for n in (0, 1, 3, 17, 64) for t in ("f4", "i4")]
IN_PLACE += [((), "f4"), ((), "f8"), ((7, 5), "f4"), ((7, 5), "u1"), ((3, 0), "f2")]


@pytest.mark.parametrize("way", range(4))
def test_inputs_are_bit_identical_after_searches_in_place_and_accumulating(way: int):
    """In this process or a child, in place or with two arrays."""
    rng = np.random.default_rng(way)
    accumulated: list[Any] = []

    @cp.autotuned(space={"wrong": (False, True), "times": (1, 2)}, reference=None)
    def add(x, out, *, config):
        accumulated.append(config)
        for _ in range(config["times"]):
            accumulate.over(out)(x, out, config["wrong"])

    with pytest.MonkeyPatch.context() as patch:
        if way % 2:
            patch.setattr(isolated, "can_fork", lambda kind: False)
        for shape, dtype in IN_PLACE:
            x = (1 + rng.random((*shape, 2)) * 50).astype(dtype)[..., 0]  # strided
            out = x if way >= 2 else (rng.random(shape) * 50).astype(dtype)
            before, other = x.copy(), out.copy()
            with cp.tuning(level="quick", budget_s=20.0), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # three of four are wrong
                picked = add.pick(x, out)
            assert x.tobytes() == before.tobytes() and out.tobytes() == other.tobytes()
            if 0 not in shape:
                assert picked == {"wrong": False, "times": 1}
    assert bool(accumulated) == bool(way % 2)


def test_a_candidate_that_writes_nothing_is_wrong_also_where_the_result_is_there_already():
    x, out = arrays()
    scale.over(out)(x, out, 1)  # the right result

    @cp.autotuned(space={"way": ("right", "lazy", "partial")})
    def lazy(x, out, *, config):
        if config["way"] == "right":
            scale.over(out)(x, out, 1)
        elif config["way"] == "lazy":
            nothing.over(1)(out)
        else:
            scale.over(out.size - 1)(x, out[:-1], 1)

    with cp.tuning(**quick), pytest.warns(RuntimeWarning, match="is wrong and is never chosen"):
        lazy(x, out)
    assert list(measured(lazy).values()) == ["ok", "wrong", "wrong"]
    assert lazy.pick(x, out) == {"way": "right"}
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.parametrize("forks", (True, False))
def test_what_is_returned_is_compared_too(forks: bool, monkeypatch: pytest.MonkeyPatch):
    """Where the function makes its result, in new memory or in an array that it keeps."""
    if not forks:
        monkeypatch.setattr(isolated, "can_fork", lambda kind: False)
    x, kept = arrays((40, 300))[0], np.zeros((40, 300), np.float32)

    @cp.autotuned(space={"way": ("right", "argument", "lazy", "more", "other", "kept", "fast")})
    def scaled(x, *, config):
        way = config["way"]
        if way == "argument":
            return x
        out = kept if way == "kept" else np.empty_like(x, np.float64 if way == "other" else None)
        if way != "lazy":
            scale.over(out)(x, out, 1)
        return (out, out) if way == "more" else {"out": out} if way == "fast" else out

    with cp.tuning(**quick), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = scaled(x)
    np.testing.assert_array_equal(found["out"] if isinstance(found, dict) else found, x * 2)
    assert list(measured(scaled).values()) == ["ok", *["wrong"] * 4, "ok", "ok"]
    if not forks:
        np.testing.assert_array_equal(kept, x * 2)


@pytest.mark.parametrize("forks", (True, False))
def test_errors_that_are_not_of_cubepy_are_told(forks: bool, monkeypatch: pytest.MonkeyPatch):
    """Each with one candidate that raises it: it may be a mistake in the function. CubePy says by
    its errors what a device cannot run, which is no news."""
    if not forks:
        monkeypatch.setattr(isolated, "can_fork", lambda kind: False)

    @cp.autotuned(space={"way": ("right", "raise", "again", "compile", "other")})
    def odd(x, out, *, config):
        if config["way"] in ("raise", "again"):
            raise RuntimeError("a mistake")
        if config["way"] == "other":
            raise KeyError("other")
        scale.over(out)(x, out, "text" if config["way"] == "compile" else 1)

    x, out = arrays()
    with cp.tuning(**quick), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        odd(x, out)
    texts = sorted(str(w.message).partition(".odd with ")[2] for w in told)
    assert texts == [
        '{"way":"other"} fails and is never chosen: KeyError: \'other\'',
        '{"way":"raise"} and 1 more fails and is never chosen: RuntimeError: a mistake',
    ]
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.parametrize("forks", (True, False))
def test_errors_are_told_also_where_their_text_has_no_encoding(
    forks: bool, monkeypatch: pytest.MonkeyPatch
):
    """Names of files may hold lone surrogates, which neither a store nor a terminal takes."""
    if not forks:
        monkeypatch.setattr(isolated, "can_fork", lambda kind: False)

    @cp.autotuned(space={"way": ("right", "raise")})
    def odd(x, out, *, config):
        if config["way"] == "raise":
            raise ValueError("cannot read \udcff")
        scale.over(out)(x, out, 1)

    x, out = arrays()
    with cp.tuning(**quick), pytest.warns(RuntimeWarning, match=r"cannot read \\udcff"):
        odd(x, out)
    np.testing.assert_array_equal(out, x * 2)
    assert list(measured(odd).values()) == ["ok", "failed"]


def test_a_warning_that_is_an_error_loses_no_search():
    @cp.autotuned(space={"wrong": (False, True)})
    def add(x, out, *, config):
        accumulate.over(out)(x, out, config["wrong"])

    x, out = arrays()
    with cp.tuning(**quick), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(RuntimeWarning, match="is wrong"):
            add(x, out)
        add(x, out)
    np.testing.assert_array_equal(out, x)
    assert list(measured(add).values()) == ["ok", "wrong"]


def test_candidates_that_fail_or_hang_leave_the_others():
    @cp.autotuned(space={"way": ("right", "raise", "compile", "hang")})
    def odd(x, out, *, config):
        if config["way"] == "raise":
            raise RuntimeError("no")
        if config["way"] == "compile":
            return scale.over(out)(x, out, "text")
        if config["way"] == "hang":
            time.sleep(100)
        return scale.over(out)(x, out, 1)

    x, out = arrays()
    tuning = cp.tuning(level="quick", budget_s=90.0, limit_s=2.0)
    with tuning, pytest.warns(RuntimeWarning, match='"raise"} fails(.*)RuntimeError: no'):
        odd(x, out)
    np.testing.assert_array_equal(out, x * 2)
    assert list(measured(odd).values()) == ["ok", "failed", "failed", "late"]


def test_what_is_not_valid_never_runs_and_a_remembered_pick_is_checked_again():
    most = 8

    def valid(config, target, problem):
        assert target.kind == "cpu"
        return config["n"] <= most

    scaled, (x, out) = scaled_by({"n": (16, 8, 1)}, valid=valid), arrays()
    with cp.tuning(**quick):
        picked = scaled.pick(x, out)
    assert set(measured(scaled)) == {'{"n":8}', '{"n":1}'}
    most = 1
    again = scaled_by({"n": (16, 8, 1)}, valid=valid)
    with cp.tuning(**quick):
        assert again.pick(x, out) == {"n": 1}
    assert picked["n"] in (1, 8)
    most = 0
    with pytest.raises(cp.LaunchError, match="E603"):
        again(*arrays((7,)))


def test_key_and_valid_run_once_for_a_signature():
    calls: list[str] = []

    def key(x, out):
        calls.append("key")
        return cp.anchor(x.shape[0]), x.dtype

    def valid(config, target, problem):
        calls.append("valid")
        return problem == (512, np.dtype("f4"))

    scaled = scaled_by({"n": (1, 4)}, key=key, valid=valid)
    with cp.tuning(level="off"):
        for _ in range(3):
            x, out = arrays()
            scaled(x, out)
        assert calls == ["key", "valid", "valid"]
        scaled(*arrays((301,)))
    assert calls.count("key") == 2


def test_problems_share_a_pick_within_a_power_of_two_and_not_between_layouts():
    scaled = scaled_by({"n": (1, 4)})
    with cp.tuning(**quick):
        for shape in ((300,), (500,), (257,)):
            scaled(*arrays(shape))
        assert len(find_records().measured_keys()) == 1
        scaled(*arrays((513,)))
        scaled(*arrays((300,), np.float64))
        x, out = arrays((600,))
        scaled(x[::2], out[::2])
    assert len(find_records().measured_keys()) == 4


def test_kernels_take_the_whole_configuration_its_parts_the_cube_dim_and_options():
    @cp.autotuned(space={"n": (1, 2), "cube_dim": (64, 128), "plane_dim": (1, 4)})
    @cp.cube
    def parts(x, out, n: cp.Comptime):
        i = cp.ABSOLUTE_POS * n
        for k in cp.unroll(range(n)):
            if i + k < out.size:
                out.flat[i + k] = x.flat[i + k] * 2

    @cp.autotuned(space={"n": (2, 4)})
    @cp.cube
    def whole(x, out, config: cp.Comptime):
        i = cp.ABSOLUTE_POS * config["n"]
        for k in cp.unroll(range(config["n"])):
            if i + k < out.size:
                out.flat[i + k] = x.flat[i + k] * 2

    x, out = arrays()
    with cp.tuning(**quick):
        parts.over(lambda c: -(-300 // c["n"]))(x, out)
        np.testing.assert_array_equal(out, x * 2)
        out[:] = 0
        whole[lambda c: (2, 256 // c["n"])](x, out)
        np.testing.assert_array_equal(out, x * 2)
        out[:] = 0
        whole[2, 256].bind(x, out)()
        np.testing.assert_array_equal(out, x * 2)
    assert len(measured(parts)) == 8 and set(measured(parts).values()) == {"ok"}
    with pytest.raises(TypeError, match="no parameter speed"):
        cp.autotuned(scale, space={"n": (1,), "speed": (1, 2)})
    with pytest.raises(TypeError, match="not in the space"):
        scaled_by({"n": (1, 2)}, reference={"n": 3})


def test_launchers_keep_no_arrays_alive():
    """The grid of a call is often a function that captured its result."""

    @cp.autotuned(space={"n": (1, 2)})
    @cp.cube
    def twice(x, out, n: cp.Comptime):
        i = cp.ABSOLUTE_POS * n
        for k in cp.unroll(range(n)):
            if i + k < out.size:
                out.flat[i + k] = x.flat[i + k] * 2

    def call(x: np.ndarray, default: bool) -> np.ndarray:
        out = np.empty_like(x)
        captured, given = lambda c: -(-out.size // c["n"]), lambda c, y=out: -(-y.size // c["n"])
        twice.over(given if default else captured)(x, out)
        return out

    x, size = arrays()[0], 300

    def grid(c: Any) -> int:
        return -(-size // c["n"])

    with cp.tuning(level="off"):
        refs = [weakref.ref(call(x, bool(k % 2))) for k in range(6)]
        gc.collect()
        assert not any(ref() is not None for ref in refs)
        assert twice.over(grid) is twice.over(grid) and twice[np.int64(8)] is twice[np.int64(8)]
        np.testing.assert_array_equal(call(x, False), x * 2)


def test_no_more_problems_are_kept_than_signatures(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(autotuned, "LIMIT", 4)
    scaled = scaled_by({"n": (1, 4)}, key=lambda x, out: out.size)
    with cp.tuning(level="off"):
        for size in range(1, 10):
            scaled.pick(*arrays((size,)))
    assert len(scaled._choices) == len(scaled._entries) == 4


def test_another_reference_judges():
    @cp.autotuned(space={"wrong": (True, False)}, reference={"wrong": False})
    def add(x, out, *, config):
        accumulate.over(out)(x, out, config["wrong"])

    x, out = arrays()
    with cp.tuning(**quick), pytest.warns(RuntimeWarning, match="is wrong"):
        add(x, out)
    np.testing.assert_array_equal(out, x)


def test_the_first_valid_one_judges_whatever_goes_first():
    @cp.autotuned(
        space={"wrong": (False, True)}, priority=lambda config, target, problem: config["wrong"]
    )
    def add(x, out, *, config):
        accumulate.over(out)(x, out, config["wrong"])

    x, out = arrays()
    with cp.tuning(level="off"):
        assert add.pick(x, out) == {"wrong": True}  # nothing was run
    with cp.tuning(**quick), pytest.warns(RuntimeWarning, match="is wrong"):
        add(x, out)
    np.testing.assert_array_equal(out, x)


@pytest.mark.optional("torch")
def test_functions_that_use_torch_are_tuned_where_it_has_threads():
    import torch

    @cp.autotuned(space={"n": (1, 4)})
    def scaled(x, out, *, config):
        between = (x * 0.5).abs()  # of so many elements by several threads
        scale.over(-(-out.numel() // config["n"]))(between, out, config["n"])

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x, out = torch.ones(1 << 20), torch.zeros(1 << 20)
        x.sin().sum()
        with cp.tuning(**quick):
            scaled(x, out)
        assert torch.get_num_threads() == 2  # it is the children's that are fewer
    finally:
        torch.set_num_threads(threads)
    assert bool((out == x).all()) and set(measured(scaled).values()) == {"ok"}


def test_methods_are_tuned_too():
    class Owner:
        factor = 2

        @cp.autotuned(space={"n": (1, 2)})
        def double(self, x, out, *, config):
            scale.over(-(-out.size // config["n"]))(x, out, config["n"])

    x, out = arrays()
    with cp.tuning(**quick):
        Owner().double(x, out)
    np.testing.assert_array_equal(out, x * 2)


def test_a_function_inside_a_candidate_is_not_tuned():
    inner = scaled_by({"n": (1, 4)})

    @cp.autotuned(space={"a": (1, 2)})
    def outer(x, out, *, config):
        inner(x, out)

    x, out = arrays()
    with cp.tuning(**quick):
        outer(x, out)
    assert measured(inner) and measured(outer)


def test_the_best_so_far_serves_while_a_search_runs_behind():
    scaled, (x, out) = scaled_by({"n": (1, 4)}), arrays()
    before = session.changes[0]
    with cp.tuning(**quick, background=True):
        scaled(x, out)
        np.testing.assert_array_equal(out, x * 2)
        for _ in range(2000):
            if session.changes[0] > before:
                break
            time.sleep(0.01)
        assert measured(scaled)
        assert find_records().picks()[0].config == scaled.pick(x, out).text


def test_wrong_options_are_refused():
    wrong: Any = (
        *({"level": "fast"}, {"budget_s": 0}, {"limit_s": float("nan")}),
        *({"budget_s": float("inf")}, {"budget_s": "a minute"}, {"seed": 1.5}),
    )
    for options in wrong:
        with pytest.raises(ValueError), cp.tuning(**options):
            pass
    for rtol in (-1e-3, float("nan")):
        with pytest.raises(ValueError, match="rtol"):
            scaled_by({"n": (1, 4)}, rtol=rtol)
    with pytest.raises(cp.Error, match="E506"), cp.settings(tune="fast"):
        pass


@pytest.mark.parametrize("made", [object(), np.arange(1000), b"text"])
def test_a_key_that_cannot_be_remembered_is_refused_in_one_line(made: object):
    scaled, (x, out) = scaled_by({"n": (1, 4)}, key=lambda x, out: made), arrays()
    with pytest.raises(TypeError, match="the key of `scaled`.*plain data") as caught:
        scaled(x, out)
    assert len(str(caught.value)) < 200


def test_settings_choose_the_level_too():
    scaled, (x, out) = scaled_by({"n": (1, 4)}), arrays()
    with cp.settings(tune="off"):
        scaled(x, out)
    assert measured(scaled) == {}
    with cp.settings(tune="quick"):
        scaled(x, out)
    assert len(measured(scaled)) == 2


def test_a_kernel_takes_a_configuration_without_an_annotation():
    @cp.autotuned(space={"n": (2, 4), "cube_dim": (64, 128)})
    @cp.cube
    def tuned(x, out, *, config):
        i = cp.ABSOLUTE_POS * config["n"]
        for k in cp.unroll(range(config["n"])):
            if i + k < out.size:
                out.flat[i + k] = x.flat[i + k] * 2

    x, out = arrays()
    with cp.tuning(**quick):
        tuned.over(lambda c: -(-out.size // c["n"]))(x, out)
    np.testing.assert_array_equal(out, x * 2)


def test_tuned_kernels_are_configured_and_inspected():
    @cp.autotuned(space={"n": (2, 4)})
    @cp.cube
    def tuned(x, out, n: cp.Comptime):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i + (n - 2)]

    x, out = arrays()
    with cp.tuning(level="off"):
        tuned.over(out)(x, out)
        np.testing.assert_array_equal(out, x)
        with pytest.raises(cp.OutOfBoundsError):
            tuned.configure(checked=True).over(out)(x[1:], out)
    specs: Any = "f32[?]", "f32[?]"
    preferred = tuned.inspect(*specs, target="opencl")
    assert preferred == tuned.over(out).inspect(*specs, target="opencl", comptime={"n": 2})
    assert preferred != tuned.inspect(*specs, target="opencl", n=4)
