"""`cubepy run`: arrays from files, results into files."""

import numpy as np
import pytest


@pytest.fixture
def x(tmp_path):
    array = np.linspace(-3, 3, 1000, dtype=np.float32).reshape(10, 100)
    np.save(tmp_path / "x.npy", array)
    return array


@pytest.fixture
def run(cli, kernels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda name, *words: cli("run", f"{kernels}:{name}", *words)


ARGS = ("--arg", "x=@x.npy", "--arg", "out=f32[10,100]")


@pytest.mark.parametrize("over", ["out", "1000", "10,100"])
def test_saves_what_it_wrote(run, x, over):
    found = run("double_all", *ARGS, "--over", over, "--line-size", "1", "--out", "out=@y.npy")
    assert found.status == 0 and "written, y.npy" in found.out
    np.testing.assert_array_equal(np.load("y.npy"), 2 * x)


def test_json(run, x):
    words = ("-a", "a=0.5", "-c", "n=3", "-c", "f=double", "--over", "out", "--json")
    found = run("add_times", *ARGS, *words).json
    source, out = found["arguments"]
    assert found["kernel"] == "add_times" and found["device"] == "cpu" and found["seconds"] > 0
    assert (source["written"], out["written"]) == (False, True)
    assert out["max"] == pytest.approx(12) and out["shape"] == [10, 100] and out["saved"] is None


def test_numbers_that_json_lacks(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([1, np.inf, np.nan], np.float32))
    found = run("double_all", "-a", "x=@x.npy", "-a", "out=f32[3]", "--over", "out", "--json").json
    assert found["arguments"][0]["max"] is None


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ((*ARGS, "--over", "ot"), 2, "did you mean `out`"),
        ((*ARGS, "--over", "1e6"), 2, "--over 1e6"),
        ((*ARGS, "--over", "out", "--out", "y=@y.npy"), 2, "--out y"),
        ((*ARGS, "--over", "out", "--device", "abacus"), 2, "E501"),
        ((*ARGS, "--over", "out", "--per", "dozen"), 2, "E416"),
        (("-a", "x=@none.npy", "-a", "out=f32[4]", "--over", "out"), 2, "no such file"),
        (("-a", "x=f32", "-a", "out=f32[4]", "--over", "out"), 2, "needs a value"),
        (("-a", "x=f32[?]", "-a", "out=f32[4]", "--over", "out"), 2, "`?` has no size"),
        (
            ("-a", "x=f32[9]", "-a", "out=f32[999999999999]", "--over", "9"),
            2,
            "out=f32[999999999999]",
        ),
        (("-a", f"x=i8[{10**20}]", "-a", "out=f32[4]", "--over", "4"), 2, "of memory here"),
        (("-a", f"x=i8[0,{10**20}]", "-a", "out=f32[4]", "--over", "4"), 2, "--arg x=i8[0,1000"),
        (("-a", "x='a'", "-a", "out=f32[4]", "--over", "out"), 2, "not a number"),
        ((*ARGS[:2], "-a", "out=f64[10,100]", "--over", "out"), 1, "E402"),
        ((*ARGS, "--over", "out", "--out", "out=@no/such/folder.npy"), 1, "cannot write"),
        (ARGS, 2, "--over"),
    ],
)
def test_refusals(run, x, words, status, text):
    found = run("double_all", *words)
    assert (found.status, found.out) == (status, "")
    assert text in found.err and "Traceback" not in found.err


def test_a_dotted_name_of_the_file(run):
    words = ("-a", "x=i32[3]", "--over", "x")
    found = run("step", *words, "-c", "by=Step.TEN", "--json")
    assert found.json["arguments"][0]["max"] == 10
    found = run("step", *words, "-c", "by=Step.TWO")
    assert (found.status, found.out) == (2, "") and "there is no `TWO`" in found.err


def test_a_literal_that_cannot_be(run):
    assert run("step", "-a", "x={[]: 1}", "-c", "by=1", "--over", "3").status == 2
    assert run("step", "-a", "x=i32[3]", "-c", "by={[]: 1}", "--over", "x").status == 0  # a text


@pytest.mark.parametrize("name", ["bf16", "f8e4m3"])
def test_statistics_of_narrow_floats(run, name):
    found = run("step", "-a", f"x={name}[3]", "-c", "by=Step.TEN", "--over", "x", "--json")
    row = found.json["arguments"][0]
    assert [row[key] for key in ("min", "max", "mean")] == [10, 10, 10]


def test_no_pickles(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    found = run("double_all", *ARGS, "--over", "out")
    assert found.status == 2 and "x.npy" in found.err
    assert "holds Python objects" in found.err and "allow_pickle" not in found.err


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "this is no .npy file"),
        (b"garbage and more garbage", "this is no .npy file"),
        (b"PK\x03\x04", "an .npz holds several arrays"),
        (b"\x93NUMPY\x01\x00", "the file is damaged"),
    ],
)
def test_files_that_are_no_arrays(run, tmp_path, data, text):
    (tmp_path / "x.npy").write_bytes(data)
    found = run("double_all", *ARGS, "--over", "out")
    assert found.status == 2 and f"x=@x.npy: {text}" in found.err and "pickle" not in found.err


def test_a_folder_is_no_file(run, tmp_path):
    (tmp_path / "x.npy").mkdir()
    assert "Is a directory" in run("double_all", *ARGS, "--over", "out").err


def test_memory_that_is_used_up(run, x, monkeypatch):
    def fail(*args, **kw):
        raise MemoryError("no room")

    monkeypatch.setattr(np, "zeros", fail)
    found = run("double_all", *ARGS, "--over", "out")
    assert (found.status, found.err.splitlines()[0]) == (1, "error: out of memory: no room")
