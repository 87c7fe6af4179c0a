"""devices, doctor, explain, bench, --version, --help, and how errors look."""

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cubepy
from cubepy.errors import CATALOGUE
from cubepy.runtimes import registry
from tests.cli.conftest import KERNELS

ROOT = Path(__file__).parents[2]
COMMANDS = ("demo", "inspect", "run", "devices", "doctor", "explain", "bench", "cache")


def cubepy_process(*words: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cubepy.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def doctor_with(threads: str) -> subprocess.CompletedProcess[str]:
    return cubepy_process("doctor", "--json", env={**os.environ, "CUBEPY_NUM_THREADS": threads})


class TestHelp:
    def test_as_a_module(self):
        found = subprocess.run(
            [sys.executable, "-m", "cubepy", "--version"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.returncode, found.stdout.split()[0]) == (0, "cubepy")

    def test_lists_every_command(self, cli):
        found = cli("--help")
        assert found.status == 0
        assert all(f"│ {name} " in found.out for name in COMMANDS)

    def test_without_a_command(self, cli):
        assert "inspect" in cli().out

    @pytest.mark.parametrize("name", [name for name in COMMANDS if name != "bench"])
    def test_of_a_command(self, cli, name):
        found = cli(name, "--help")
        assert found.status == 0 and "--json" in found.out

    def test_is_fast_because_it_imports_little(self):
        code = "import sys; from cubepy.cli.main import app; app(['--help'], prog_name='cubepy')"
        heavy = "import sys, atexit; atexit.register(lambda: print(sorted(set(sys.modules) & "
        heavy += "{'numpy', 'llvmlite', 'cubepy.api', 'cubepy.jit.kernel'}), file=sys.stderr)); "
        done = subprocess.run(
            [sys.executable, "-c", heavy + code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and done.stderr.strip() == "[]"


class TestVersion:
    def test_text(self, cli):
        assert cli("--version").out == f"cubepy {cubepy.__version__}\n"

    def test_json(self, cli):
        assert cli("--version", "--json").json == {"version": cubepy.__version__}


class TestJsonBeforeTheCommand:
    @pytest.mark.parametrize(
        "words", [("devices",), ("explain", "E104"), ("cache",), ("cache", "list")]
    )
    def test_is_the_same_as_behind_it(self, cli, words):
        assert cli("--json", *words).json.keys() == cli(*words, "--json").json.keys()

    def test_between_a_group_and_its_command(self, cli):
        found = [
            cli(*words).json for words in (("cache", "--json", "list"), ("cache", "list", "--json"))
        ]
        assert [f["folder"] for f in found] == [found[0]["folder"]] * 2

    def test_of_an_error(self, cli):
        assert cli("--json", "explain", "E999").json["status"] == 2


class TestErrors:
    def test_unknown_command(self, cli):
        found = cli("inspet")
        assert found.status == 2 and found.out == ""
        assert found.err.startswith("error: ") and "inspect" in found.err
        assert found.err.count("\n") <= 3

    def test_missing_argument(self, cli):
        found = cli("inspect")
        assert found.status == 2 and "help: cubepy inspect --help" in found.err

    @pytest.mark.parametrize(
        "words, status, code",
        [
            (("explain", "E999"), 2, None),
            (("inspect",), 2, None),
            (("inspect", "--json=3", "x"), 2, None),
            (("inspet",), 2, None),
            (("inspect", "nothing.py:kernel"), 2, None),
            (("inspect", f"{KERNELS}:double_all", "--arg", "x=f3"), 2, "E415"),
            (
                ("inspect", f"{KERNELS}:broken", "--arg", "x=f32[4]", "--arg", "out=f32[4]"),
                1,
                "E102",
            ),
        ],
    )
    def test_json(self, cli, words, status, code):
        found = cli(*words, "--json")
        assert (found.status, found.err) == (status, "")
        assert found.json["status"] == status and found.json["error"]["code"] == code
        text = cli(*words)
        assert found.json["error"]["message"] in text.err and text.out == ""
        assert found.json["error"]["help"] is None or found.json["error"]["help"] in text.err

    def test_reaches_the_shell(self):
        done = cubepy_process("explain", "E999")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: there is no error code `E999`")


class TestDevices:
    def test_json(self, cli):
        first = cli("devices", "--json").json["devices"][0]
        assert first["name"] == "cpu" and first["target"].startswith("cpu:")
        assert first["cores"] >= 1 and first["memory_bytes"] > 1 << 20

    def test_table(self, cli):
        found = cli("devices")
        assert found.status == 0 and "cpu" in found.out


@pytest.mark.parametrize("command", ["devices", "doctor"])
class TestMissingDevices:
    @pytest.fixture(autouse=True)
    def no_bindings(self, monkeypatch):
        """As on a system where nothing optional is installed."""
        for kind in ("cuda.driver", "opencl.platform", "metal.platform"):
            module = importlib.import_module(f"cubepy.runtimes.{kind}")
            for cached in ("driver", "api", "_bindings", "found_devices"):
                getattr(getattr(module, cached, None), "cache_clear", lambda: None)()
            monkeypatch.setattr(module, "import_module", self.refuse)
        registry._opened.clear()
        count = importlib.import_module("cubepy.runtimes.cuda.device").count
        count.cache_clear()
        yield
        count.cache_clear()
        registry._opened.clear()

    @staticmethod
    def refuse(name):
        raise ImportError(name)

    def test_text(self, cli, command):
        found = " ".join(cli(command).out.split())
        assert "no cuda: cuda-bindings is missing; pip install 'cubepy-jit[cuda]'" in found
        assert "no opencl: pyopencl is missing; pip install 'cubepy-jit[opencl]'" in found
        assert "no metal: " in found

    def test_json(self, cli, command):
        found = cli(command, "--json").json
        assert set(found["missing"]) == {"cuda", "opencl", "metal"}
        assert [d["name"] for d in found["devices"]] == ["cpu", "interpreter"]


def test_extras_that_messages_name_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for kind in ("cuda.driver", "opencl.platform", "metal.platform"):
        install = importlib.import_module(f"cubepy.runtimes.{kind}").INSTALL
        extra = install.partition("[")[2].partition("]")[0]
        assert extra in extras["optional-dependencies"]


class TestDoctor:
    def test_json(self, cli):
        found = cli("doctor", "--json")
        state = found.json
        assert found.status == 0 and state["ok"]
        assert {"cubepy", "python", "numpy", "llvmlite", "LLVM"} <= set(state["versions"])
        assert state["self_test"]["compile_s"] > 0 and state["cpu"]["threads"] >= 1
        assert all({"variable", "value", "source", "doc"} <= set(row) for row in state["settings"])

    def test_text(self, cli):
        found = cli("doctor")
        assert found.status == 0
        assert "self-test passed" in found.out and "CUBEPY_NUM_THREADS" in found.out

    def test_says_where_a_setting_comes_from(self):
        state = json.loads(doctor_with("1").stdout)
        rows = {row["variable"]: row for row in state["settings"]}
        assert rows["CUBEPY_NUM_THREADS"]["value"] == 1 == state["cpu"]["threads"]
        assert rows["CUBEPY_NUM_THREADS"]["source"] == "environment"
        assert rows["CUBEPY_DEVICE"]["source"] == "default"

    def test_survives_an_invalid_setting(self):
        done = doctor_with("many")
        assert done.returncode == 1 and not json.loads(done.stdout)["ok"]
        assert "many" in done.stdout and "Traceback" not in done.stderr

    def test_names_the_command_that_installs(self, cli, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        found = cli("doctor")
        assert "pip install 'cubepy-jit[demo]'" in found.out


class TestExplain:
    @pytest.mark.parametrize("code", ["E104", "e104", "104"])
    def test_one(self, cli, code):
        found = cli("explain", code)
        assert found.status == 0 and "E104" in found.out and "CompileError" in found.out

    @pytest.mark.parametrize("code", CATALOGUE)
    def test_every_code(self, cli, code):
        described = cli("explain", code, "--json").json
        assert described["code"] == code and described["message"]

    def test_all(self, cli):
        codes = [row["code"] for row in cli("explain", "--json").json["codes"]]
        assert codes == list(CATALOGUE)
        assert "E104" in cli("explain").out

    def test_unknown(self, cli):
        found = cli("explain", "E1O4")
        assert found.status == 2 and "E104" in found.err


class TestBench:
    def test_needs_the_repository(self, cli, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cubepy, "__file__", str(tmp_path / "cubepy" / "__init__.py"))
        found = cli("bench")
        assert found.status == 2 and "needs the repository" in found.err

    def test_hands_over_its_options(self, cli, monkeypatch):
        commands = []
        done = subprocess.CompletedProcess([], 3)
        monkeypatch.setattr(
            subprocess, "run", lambda command, **_: commands.append(command) or done
        )
        found = cli("bench", "--json", "elementwise")
        assert found.status == 3
        assert commands[0][1:] == ["-m", "bench", "--json", "elementwise"]


def test_a_broken_pipe_is_quiet():
    process = subprocess.Popen(
        [sys.executable, "-m", "cubepy.cli", "explain", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    os.close(process.stdout.fileno())
    assert b"Traceback" not in process.stderr.read()
    process.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is Linux's")
@pytest.mark.parametrize("words", [("explain", "--json"), ("explain", "E104"), ("--version",)])
def test_a_full_disk_is_said(words: tuple[str, ...]):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cubepy.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "cannot write: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_width_of_zero_is_unknown():
    done = subprocess.run(
        [sys.executable, "-m", "cubepy.cli", "--help"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "0"},
    )
    assert "Usage: cubepy" in done.stdout
