"""`cubepy inspect`: stages, targets, the map to Python, and what it refuses."""

import re
from pathlib import Path

import pytest

from tests.optional import require_package

SPECS = ("--arg", "x=f32[1024]", "--arg", "out=f32[1024]")


@pytest.fixture
def inspect(cli, kernels):
    def run(name: str, *words: str):
        return cli("inspect", f"{kernels}:{name}", *words)

    return run


def line_of(path: str, text: str) -> int:
    lines = Path(path).read_text().splitlines()
    return 1 + next(k for k, line in enumerate(lines) if text in line)


class TestStages:
    @pytest.mark.parametrize(
        ("stage", "sign"),
        [("ir", "kernel @double_all"), ("llvm", "define"), ("asm", "double_all:")],
    )
    def test_text(self, inspect, stage, sign):
        found = inspect("double_all", *SPECS, "--stage", stage)
        assert found.status == 0 and sign in found.out

    def test_default_is_llvm(self, inspect):
        assert "define" in inspect("double_all", *SPECS).out

    def test_target_decides_the_width(self, inspect):
        narrow = inspect("double_all", *SPECS, "--target", "cpu:x86-64-v3", "--stage", "asm").out
        wide = inspect("double_all", *SPECS, "--target", "cpu:x86-64-v4", "--stage", "asm").out
        assert "%ymm" in narrow and "%zmm" not in narrow and "%zmm" in wide

    def test_line_size(self, inspect):
        found = inspect("double_all", *SPECS, "--line-size", "4")
        assert "<4 x float>" in found.out

    @pytest.mark.parametrize(("text", "dims"), [("64", "64 1 1"), ("8,4", "8 4 1")])
    def test_cube_dim(self, inspect, text, dims):
        found = inspect("double_all", *SPECS, "--cube-dim", text, "--stage", "ir")
        assert f"cube_dim {dims}" in found.out

    def test_plane_dim(self, inspect):
        found = inspect("double_all", *SPECS, "--plane-dim", "32", "--stage", "ir")
        assert "plane_dim 32" in found.out

    def test_vectorise(self, inspect):
        words = ("add_times", *SPECS, "-a", "a=f32", "-c", "n=2", "-c", "f=double")
        words += ("--stage", "remarks", "--target", "cpu:x86-64-v3")
        assert "units are lanes of lines of 8" in inspect(*words, "--vectorise", "yes").out
        assert "units are lanes" not in inspect(*words, "--vectorise", "no").out
        assert inspect(*words, "--vectorise", "4").status == 2

    def test_scalars_and_comptime(self, inspect):
        words = (*SPECS, "-a", "a=f32", "-c", "n=2", "-c", "f=double", "--stage", "ir")
        found = inspect("add_times", *words)
        assert found.status == 0 and found.out.count("= add") == 2


class TestMap:
    @pytest.mark.parametrize("stage", ["ir", "llvm", "asm"])
    def test_leads_to_python(self, inspect, kernels, stage):
        found = inspect("double_all", *SPECS, "--stage", stage, "--json").json
        assert (found["target"], found["stage"], found["kernel"]) == ("cpu", stage, "double_all")
        helper, store = line_of(kernels, "return v + v"), line_of(kernels, "double(x.flat[i])")
        assert {helper, store} <= {row["source_line"] for row in found["map"]}
        assert {row["file"] for row in found["map"]} == {kernels}

    def test_adds_come_from_the_helper(self, inspect, kernels):
        found = inspect("double_all", *SPECS, "--stage", "asm", "--json").json
        lines = found["text"].splitlines()
        adds = [row for row in found["map"] if re.search(r"\bvaddps|addps", lines[row["line"] - 1])]
        assert adds and {row["text"] for row in adds} == {"return v + v"}

    def test_comments_say_the_same(self, inspect):
        found = inspect("double_all", *SPECS, "--stage", "llvm", "--json").json
        lines = found["text"].splitlines()
        comments = [k for k, line in enumerate(lines, 1) if line.startswith("  ; kernels_file.py:")]
        places = {row["line"]: row for row in found["map"]}
        assert comments
        for k in comments:
            assert f":{places[k]['source_line']}  {places[k]['text']}" in lines[k - 1]


class TestPrebuilt:
    def test_pooling(self, cli):
        words = ("-a", "x=f32[2,3,64,64]", "-c", "kernel_size=3", "--target", "cpu:x86-64-v3")
        found = cli("inspect", "cubepy.kernels:max_pool2d", *words, "--json")
        assert found.status == 0
        assert "define" in found.json["text"]
        assert any("cubepy/kernels/" in row["file"] for row in found.json["map"])

    def test_reduction(self, cli):
        words = ("-a", "x=f32[1024,1024]", "-c", "axis=0", "--stage", "asm")
        found = cli("inspect", "cubepy.kernels:sum", *words)
        assert found.status == 0 and "addps" in found.out

    def test_map(self, cli, kernels):
        words = ("-a", "x=f32[1024]", "-c", f"function={kernels}:double", "--json")
        found = cli("inspect", "cubepy.kernels:map", *words)
        assert found.status == 0
        assert kernels in {row["file"] for row in found.json["map"]}

    def test_missing_option(self, cli):
        found = cli("inspect", "cubepy.kernels:max_pool2d", "-a", "x=f32[2,3,64,64]")
        assert found.status == 2 and "kernel_size" in found.err and "--comptime" in found.err

    def test_misspelt(self, cli):
        found = cli("inspect", "cubepy.kernels:max_pol2d")
        assert found.status == 2 and "max_pool2d" in found.err

    def test_chooses_its_own_grid(self, cli):
        words = ("-a", "x=f32[2,3,64,64]", "-c", "kernel_size=3", "--cube-dim", "8")
        assert cli("inspect", "cubepy.kernels:max_pool2d", *words).status == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "words", "status", "text"),
        [
            ("doubel_all", (), 2, "did you mean `double_all`"),
            ("nothing_like_it", (), 2, "add_times, broken, double, double_all"),
            ("not_a_kernel", (), 2, "not a kernel"),
            ("double_all", (), 2, "E406"),
            ("double_all", ("--arg", "x"), 2, "NAME=VALUE"),
            ("double_all", ("--arg", "x=f33[4]"), 2, "E415"),
            ("double_all", ("--arg", "x=f32[4,,4]"), 2, "E415"),
            ("double_all", ("--arg", "x=f32[²]"), 2, "E415"),
            ("double_all", (*SPECS, "--arg", "x=f32"), 2, "twice"),
            ("double_all", (*SPECS, "--stage", "ptx"), 2, "stages: ir, llvm, asm, remarks"),
            ("double_all", (*SPECS, "--target", "tpu"), 2, "E503"),
            ("double_all", (*SPECS, "--target", "cuda:sm_50"), 2, "sm_75 is the oldest"),
            ("double_all", (*SPECS, "--target", "cuda:sm_999"), 2, "sm_75, sm_80, sm_86"),
            ("add_times", (*SPECS, "-a", "a=f32", "-a", "n=3"), 2, "write -c n=3"),
            ("double_all", (*SPECS, "--cube-dim", "a"), 2, "--cube-dim a"),
            ("double_all", ("-a", "x=f64[4]", "-a", "out=f32[4]"), 1, "E402"),
            ("broken", SPECS, 1, "undefined_name"),
        ],
    )
    def test_message(self, inspect, name, words, status, text):
        found = inspect(name, *words)
        assert (found.status, found.out) == (status, "")
        assert text in found.err and "Traceback" not in found.err
        assert found.err.startswith("error: ") and found.err.count("\n") <= 12

    @pytest.mark.parametrize(
        ("reference", "status", "text"),
        [
            ("nowhere.py:f", 2, "no file `nowhere.py`"),
            ("no_such_module:f", 2, "no module `no_such_module`"),
            ("cubepy.kernels", 2, "names no kernel"),
        ],
    )
    def test_reference(self, cli, reference, status, text):
        found = cli("inspect", reference)
        assert found.status == status and text in found.err

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("x = 1 / 0\n", "(bad.py:1): ZeroDivisionError"),
            ("def f(:\n", "SyntaxError"),
            ("import no_such_module\n", "ModuleNotFoundError"),
        ],
    )
    def test_file_that_fails(self, cli, tmp_path, source, text):
        path = tmp_path / "bad.py"
        path.write_text(source)
        found = cli("inspect", f"{path}:f")
        assert found.status == 1 and text in found.err and "Traceback" not in found.err

    def test_file_without_kernels(self, cli, tmp_path):
        (tmp_path / "empty.py").write_text("")
        found = cli("inspect", f"{tmp_path / 'empty.py'}:f")
        assert found.status == 2 and "holds no kernels" in found.err


TITLES = ["IR", "LLVM", "assembly", "CUDA C", "PTX", "SASS", "OpenCL C", "Metal", "HIP"]


class TestAll:
    def test_every_text(self, inspect):
        require_package("cuda.bindings")
        found = inspect("double_all", *SPECS, "--all")
        assert found.status == 0
        assert re.findall(r"^=== ([\w ]+) \(", found.out, re.MULTILINE) == TITLES
        for sign in ("kernel @double_all", "define", "__global__", "__kernel", "kernel void"):
            assert sign in found.out

    def test_the_target_takes_the_place_of_its_kind(self, inspect):
        out = inspect("double_all", *SPECS, "--all", "--target", "cuda:sm_80").out
        assert out.count("(cuda:sm_80)") == 3 and "sm_90a" not in out

    def test_absent_tools_are_named(self, inspect, monkeypatch):
        from cubepy.compilers.cuda import toolchain

        monkeypatch.setattr(toolchain, "_nvrtc", lambda: None)
        monkeypatch.setattr(toolchain, "find_nvdisasm", lambda: None)
        found = inspect("double_all", *SPECS, "--all", "--json")
        views = {view["title"]: view for view in found.json["views"]}
        assert found.status == 0 and list(views) == TITLES
        assert "pip install 'cubepy-jit[cuda]'" in views["PTX"]["reason"]
        assert "pip install nvidia-cuda-nvdisasm" in views["SASS"]["reason"]
        assert views["PTX"]["text"] is None and views["CUDA C"]["text"]

    def test_what_a_target_lacks(self, inspect):
        wide = [word.replace("f32", "f64") for word in SPECS]
        out = inspect("add_times", *wide, "-a", "a=f32", "-c", "n=0", "-c", "f=double", "--all").out
        assert "Metal has no double" in out and "const double*" in out

    def test_no_stage_beside_it(self, inspect):
        found = inspect("double_all", *SPECS, "--all", "--stage", "ir")
        assert found.status == 2 and "--all shows every stage" in found.err
