"""Kernels of a later process: found without a trace and without LLVM, or made anew if anything
that they mean has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.cache.codec import ARTIFACT_FIELDS
from cubepy.cache.folder import IS_SUPPORTED
from tests.cache.changes import CHANGES, HELPER, kernel
from tests.cache.conftest import Cache, X, run

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the cache is POSIX only")

Load = Callable[..., Any]


def fresh_result(text: str, load: Load, helpers: str | None = None) -> np.ndarray:
    """What a kernel gives without the cache."""
    with cp.settings(cache=False):
        return run(load(text, helpers).k)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_a_miss(what: str, cache: Cache, load: Load) -> None:
    before, after = CHANGES[what]
    expected = fresh_result(before, load), fresh_result(after, load)
    cache.counts()
    for text, result in zip((before, after), expected, strict=True):
        np.testing.assert_array_equal(run(load(text).k), result)
        assert cache.counts() == (1, 1) or what == "the sign of zero"  # no code for a factor of 0
    for text, result in zip((before, after), expected, strict=True):
        np.testing.assert_array_equal(run(load(text).k), result)
        assert cache.counts() == (0, 0)


BASE = kernel("h(v) * N", HELPER + "N = 3\n")
SAME = {
    "a comment": BASE.replace("return", "# why\n    return"),
    "a blank line": BASE.replace("    i =", "\n\n    i ="),
    "another place": "import os\nOTHER = 5\n" + BASE,
    "spaces": BASE.replace("v * 2 + 1", "(v*2)  +  1"),
    "a comment behind": BASE.replace("v * 2 + 1", "v * 2 + 1  # so"),
    "another function": BASE + "def other():\n    return 7\n",
    "another global": BASE + "M = 9\n",
    "equal text": BASE.replace("N = 3\n", "N = 1 + 2\n"),
    "an unread method": BASE,
    "line ends": BASE.replace("\n    if", "\n    \n    if"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_meaning_is_a_hit(what: str, cache: Cache, load: Load) -> None:
    expected = run(load(BASE).k)
    assert cache.counts() == (1, 1)
    np.testing.assert_array_equal(run(load(SAME[what]).k), expected)
    assert cache.counts() == (0, 0)


UNKNOWN = {
    "the environment": kernel("v * h()", "import os\ndef h(): return len(os.environ) * 0 + 2\n"),
    "a file": kernel(
        "v * h()", "def h():\n    with open('/dev/null') as f: return len(f.read()) + 2\n"
    ),
    "the time": kernel("v * h()", "import time\ndef h(): return int(time.time() * 0) + 2\n"),
    "random numbers": kernel("v * h()", "def h(): return int(np.random.rand() * 0) + 2\n"),
    "an import": kernel("v * h()", "def h():\n    import os\n    return len(os.sep) + 1\n"),
    "a name given as text": kernel("v * h()", "N = 2\ndef h(): return globals()['N']\n"),
    "an attribute by name": kernel("v * getattr(np, 'pi')"),
    "a module as a value": kernel("v * h(math)", "def h(m): return m.floor(2.5)\n"),
    "a generator": kernel("v * next(g)", "g = iter([2, 2, 2, 2, 2, 2])\n"),
    "a counter": kernel(
        "v * h()", "calls = []\ndef h():\n    calls.append(1)\n    return len(calls) * 0 + 2\n"
    ),
    "an attribute of a function": kernel("v * h.n", "def h(): pass\nh.n = 2\n"),
    "an attribute of a partial function": kernel(
        "v * h()", "import functools\np = functools.partial(int)\np.n = 2\ndef h(): return p.n\n"
    ),
    "a function that NumPy was given": kernel(
        "v * h()", "f = np.frompyfunc(lambda n: n * 2, 1, 1)\ndef h(): return int(f(1))\n"
    ),
    "annotations as Python reads them": kernel(
        "v * h()",
        "import typing\nclass C:\n    a: int\n    b: int\n"
        "def h(): return len(typing.get_type_hints(C))\n",
    ),
    "the line of a function": kernel("v * h()", "def h(): return h.__code__.co_argcount + 2\n"),
    "a number in the text that is too long to be written": kernel(
        "v * h()", f"def h(): return 0x{'f' * 5000} % 10\n"
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_compared_is_not_kept(what: str, cache: Cache, load: Load) -> None:
    for _ in range(2):
        result = run(load(UNKNOWN[what]).k)
        assert cache.counts()[1] == 1 and np.isfinite(result).all()


def test_a_helper_of_another_module_is_read_again(cache: Cache, load: Load) -> None:
    text = kernel("user_helpers.h(v)", "import user_helpers\n")
    for helpers, result in ((HELPER, X * 2 + 1), (HELPER.replace("2", "3"), X * 3 + 1)):
        np.testing.assert_allclose(run(load(text, helpers).k), result, rtol=1e-6)
        assert cache.counts() == (1, 1)
    np.testing.assert_allclose(run(load(text, HELPER).k), X * 2 + 1, rtol=1e-6)
    assert cache.counts() == (0, 0)


def test_a_replaced_helper_is_not_taken_for_the_one_before(cache: Cache, load: Load) -> None:
    text = kernel("user_helpers.h(v)", "import user_helpers\n")
    run(load(text, HELPER).k)
    module = load(text, HELPER)
    module.user_helpers.h = lambda v: v - 1
    cache.counts()
    np.testing.assert_allclose(run(module.k), X - 1)
    assert cache.counts() == (1, 1)


def test_a_name_that_was_put_among_pythons_own(
    cache: Cache, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins

    for n in (2, 3):
        monkeypatch.setattr(builtins, "COUNT", n, raising=False)
        np.testing.assert_allclose(run(load(kernel("v * COUNT")).k), X * n)


def test_nothing_is_kept_once_cubepys_own_files_changed(
    cache: Cache, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that runs while CubePy is updated imports some of the old and some of the new."""
    from cubepy.cache import versions

    monkeypatch.setattr(versions, "sources", lambda: "those of an update")
    for _ in range(2):
        run(load(BASE).k)
        assert cache.counts() == (1, 1)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), OSError(24, "no descriptor")])
def test_nothing_is_kept_while_cubepys_own_files_cannot_be_looked_at(
    error: OSError, cache: Cache, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubepy.cache import versions

    def scan(folder: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(versions.os, "scandir", scan)
        np.testing.assert_array_equal(run(load(BASE).k), (X * 2 + 1) * 3)
    assert cache.counts() == (1, 1)
    run(load(BASE).k)
    assert cache.counts() == (1, 1)
    run(load(BASE).k)
    assert cache.counts() == (0, 0)


def test_a_captured_value_may_change_after_a_hit(cache: Cache, load: Load) -> None:
    text = kernel("v * N", "N = 2\n")
    run(load(text).k)
    module = load(text)
    np.testing.assert_allclose(run(module.k), X * 2)
    module.N = 3
    np.testing.assert_allclose(run(module.k), X * 3)
    module.N = 2
    cache.counts()
    np.testing.assert_allclose(run(module.k), X * 2)
    assert cache.counts() == (0, 0)


def test_what_a_launch_chooses_is_part_of_the_key(cache: Cache, load: Load) -> None:
    text = kernel("v * v + v * 3")
    chosen: list[dict[str, Any]] = [
        {},
        {"contract": False},
        {"fast_math": True},
        {"checked": True},
        {"plane_dim": 4},
    ]
    for options in chosen:
        np.testing.assert_allclose(run(load(text).k, **options), X * X + X * 3, rtol=1e-5)
        assert cache.counts()[1] == 1, options
    for options in chosen:
        run(load(text).k, **options)
        assert cache.counts() == (0, 0), options


def test_settings_are_part_of_the_key(cache: Cache, load: Load) -> None:
    text = kernel("v + 1")
    for settings in ({}, {"opt_level": 0}, {"checked": True}, {"scratch_bytes": 1 << 20}):
        with cp.settings(**settings):
            run(load(text).k)
            assert cache.counts()[1] == 1, settings
            run(load(text).k)
            assert cache.counts() == (0, 0), settings


def test_types_and_layouts_are_part_of_the_key(cache: Cache, load: Load) -> None:
    module = load(kernel("v + 1"))
    raw = np.zeros(33, np.float32)
    cases = [raw[:32], raw[1:33], raw[::2], raw.astype(np.float64), raw[:32].reshape(4, 8)]
    made = 0
    for again in (False, True):
        for case in cases:
            (module if not again else load(kernel("v + 1"))).k.over(case)(case, case.copy())
        made += cache.counts()[1]
        assert made and (not again or cache.counts() == (0, 0))
    assert made >= 4
    aliased = raw[:32]
    module.k.over(aliased)(aliased, aliased)  # in place: without `noalias`
    assert cache.counts()[1] == 1


def test_comptime_arguments_are_part_of_the_key(cache: Cache, load: Load) -> None:
    text = (
        "@cp.cube\ndef k(x, out, f: cp.Comptime, n: cp.Comptime = 1):\n    i = cp.ABSOLUTE_POS\n"
        "    if i < out.size:\n        out.flat[i] = f(x.flat[i]) * n\n"
        "def twice(v): return v * 2\ndef thrice(v): return v * 3\nM = {m}\n"
        "def times(v): return v * M\n"
    )
    for m, name, factor in ((1, "twice", 2), (1, "thrice", 3), (1, "times", 1), (4, "times", 4)):
        for builds in (1, 0):
            module = load(text.format(m=m))
            np.testing.assert_allclose(run(module.k, getattr(module, name)), X * factor)
            assert cache.counts() == (builds, builds), name
    for n in (1.0, True, 2, 2.0):
        run(load(text.format(m=1)).k, lambda v: v, n)
        assert cache.counts()[0] == 1, n


def test_the_target_is_part_of_the_key(cache: Cache, load: Load) -> None:
    from cubepy.cache.kept import target_key
    from cubepy.targets import cpu_target, parse_target

    names = ("x86-64-v3", "x86-64-v4", "znver4")
    keys = {target_key(cpu_target(name)) for name in names}
    keys |= {target_key(parse_target(name)) for name in ("cuda:sm_80", "cuda:sm_90", "cuda:sm_90a")}
    assert len(keys) == 6


@pytest.mark.parametrize("what", ["cubepy", "llvmlite", "LLVM", "python", "numpy", "format"])
def test_versions_are_part_of_the_key(
    what: str, cache: Cache, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubepy.cache import kept

    run(load(BASE).k)
    cache.counts()
    real = kept.versions
    assert what in real("cpu")
    monkeypatch.setattr(kept, "versions", lambda kind: {**real(kind), what: "another"})
    run(load(BASE).k)
    assert cache.counts() == (1, 1)


def test_faults_of_a_kept_kernel_name_the_present_line(cache: Cache, load: Load) -> None:
    text = "@cp.cube\ndef k(x, out):\n    out[cp.ABSOLUTE_POS + 1] = x[cp.ABSOLUTE_POS]\n"
    messages: list[str] = []
    for before in ("", "", "\n\n# lower\n"):
        module = load(before + text)
        with pytest.raises(cp.OutOfBoundsError) as caught:
            run(module.k, checked=True)
        line = next(
            n for n, t in enumerate(open(module.__file__), 1) if t.strip().startswith("out[")
        )
        error: Any = caught.value
        assert (error.line, error.argument, error.axis, error.index) == (line, "out", 0, 23)
        messages.append(str(error))
    assert messages[0] == messages[1] != messages[2]


def test_a_fault_in_a_helper_shows_its_calls(cache: Cache, load: Load) -> None:
    text = kernel("h(x, i)", "@cp.cube\ndef h(x, i):\n    return x[i + 20]\n")
    messages: list[str] = []
    for _ in range(2):
        with pytest.raises(cp.OutOfBoundsError, match="called from") as caught:
            run(load(text).k, checked=True)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert cache.counts() == (1, 1)


def test_stages_are_printed_of_a_kept_kernel(
    cache: Cache, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []
    for _ in range(2):
        run(load(BASE).k)
        with cp.settings(dump=("ir", "llvm")):
            run(load(BASE).k)
        printed.append(capsys.readouterr().err)
    assert printed[0] == printed[1] and "; llvm of k" in printed[0]
    assert "@k(" in load(BASE).k.inspect("f32[23]", "f32[23]", stage="ir")


def test_errors_are_not_kept(cache: Cache, load: Load) -> None:
    for _ in range(2):
        with pytest.raises(cp.CompileError):
            run(load(kernel("v + missing")).k)
    module = load(kernel("v + missing"))
    module.missing = 2
    np.testing.assert_allclose(run(module.k), X + 2)


def test_a_damaged_entry_is_made_again(cache: Cache, load: Load) -> None:
    expected = run(load(BASE).k)
    for position in (0, 30, 60, 200, -1):
        for file in cache.files():
            data = bytearray(file.read_bytes())
            data[position] ^= 1
            file.write_bytes(data)
        cache.counts()
        np.testing.assert_array_equal(run(load(BASE).k), expected)
        assert cache.counts() == (1, 1)


def test_artifacts_are_kept_whole() -> None:
    """A new field of an artifact must be taught to the codec."""
    from dataclasses import fields

    from cubepy.artifact import Artifact
    from cubepy.frontend.facts import Facts

    assert {f.name for f in fields(Artifact)} == ARTIFACT_FIELDS
    known = {"uses_axes", "shaped", "written", "read", "lined", "lanewise", "captures"}
    assert {f.name for f in fields(Facts)} == known


def test_the_key_holds_every_field_of_signatures_and_options() -> None:
    from dataclasses import fields

    from cubepy.cache.kept import NOTHING_KEPT
    from cubepy.frontend.signature import Signature
    from cubepy.options import Options

    traced = {"args", "cube_dim", "plane_dim", "checked", "attributes"}
    promised = {"noalias", "limit", "flat", "aligned", "small", "alignment"}
    assert {f.name for f in fields(Signature)} == traced | promised
    signature = Signature((), (1, 1, 1), 1, True)
    keys = {NOTHING_KEPT._key_of(signature, Options())}
    for field in fields(Options):
        other: dict[str, Any] = {field.name: "another"}
        keys.add(NOTHING_KEPT._key_of(signature, Options(**other)))
    assert len(keys) == 1 + len(fields(Options))
