"""`cubepy demo`: its kernels, what it prints, and the report."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from cubepy.cli.demo import picture, show
from cubepy.cli.demo.peers import find_peers, set_threads
from cubepy.cli.demo.steps import STEPS
from cubepy.cli.demo.timing import measure
from cubepy.cli.demo.trial import try_step
from cubepy.cli.failures import Failure

pytestmark = pytest.mark.optional("PIL")
KEYS = [step.key for step in STEPS]


@pytest.fixture(scope="module")
def planes() -> np.ndarray:
    return np.random.default_rng(1).random((3, 96, 160), dtype=np.float32)


@pytest.fixture
def quick(monkeypatch):
    """Without the peers, which take seconds to load, and with little timing."""
    monkeypatch.setattr("cubepy.cli.demo.peers.installed", lambda: [])
    monkeypatch.setattr("cubepy.cli.demo.show.installed", lambda: [])
    monkeypatch.setattr(show, "BUDGET", 0.01)


@pytest.fixture
def photograph(tmp_path, planes):
    from PIL import Image

    path = tmp_path / "a <b> & c.png"
    pixels = (planes.transpose(1, 2, 0) * 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


class TestSteps:
    @pytest.mark.parametrize("step", STEPS, ids=KEYS)
    def test_agrees_with_numpy(self, step, planes, quick):
        outcome = try_step(step, planes, 0.001)
        assert outcome.is_right, outcome.rows
        assert outcome.rows[0].contender == "CubePy cpu" and outcome.rows[0].seconds

    @pytest.mark.parametrize("step", STEPS, ids=KEYS)
    def test_a_wrong_result_is_found(self, step, planes, quick):
        wrong = type(step)(**{f: getattr(step, f) for f in step.__slots__} | {"run": write_nothing})
        assert not try_step(wrong, planes, 0.001).is_right

    @pytest.mark.optional("numba", "torch")
    @pytest.mark.parametrize("step", STEPS, ids=KEYS)
    def test_peers_do_the_same(self, step, planes):
        set_threads(1)
        x = step.prepare(planes)
        wanted = step.output(x)
        step.numpy(x, wanted)
        peers = find_peers(step.key)
        assert {"numba", "torch"} <= set(peers)
        for contender in peers.values():
            out = step.output(x)
            contender(x, out)
            np.testing.assert_allclose(out, wanted, atol=1e-5)


def write_nothing(device, x, out):
    out[...] = 7


def test_contenders_take_turns():
    order: list[str] = []
    calls = {name: (lambda n=name: order.append(n)) for name in "abc"}
    medians = measure(calls, 0)
    assert set(medians) == {"a", "b", "c"}
    assert [order[6 * k] for k in range(3)] == ["a", "b", "c"]


class Page(HTMLParser):
    """Collects the tags and what they load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found: dict[str, str] = {k: v or "" for k, v in attrs}
        self.ids.add(found.get("id", ""))
        if tag == "img":
            self.images.append(found["src"])
        elif tag in ("link", "script", "iframe", "source") or "src" in found:
            self.loaded += [v for k, v in found.items() if k in ("href", "src")]


class TestReport:
    @pytest.fixture
    def run(self, cli, photograph, tmp_path, quick):
        words = ("--output", tmp_path / "report", "--megapixels", "0.02")
        return lambda *more: cli("demo", photograph, *words, *more)

    def test_text(self, run, tmp_path):
        found = run()
        assert found.status == 0
        assert "all results agree" in found.out and "enlarged to" in found.out
        assert all(step.title in found.out for step in STEPS)
        assert (tmp_path / "report" / "demo.html").is_file()

    def test_json(self, run):
        found = run("--json").json
        assert found["ok"] and [step["step"] for step in found["steps"]] == KEYS
        rows = found["steps"][0]["contenders"]
        assert {row["contender"] for row in rows} >= {"CubePy cpu", "NumPy"}
        assert all(row["max_error"] < 1e-5 for row in rows)
        assert {"processor", "cores", "NumPy", "LLVM"} <= set(found["machine"])

    def test_page_is_complete_and_alone(self, run, tmp_path):
        run()
        html = (tmp_path / "report" / "demo.html").read_text(encoding="utf-8")
        page = Page(html)
        assert len(page.images) == 8 and not page.loaded
        for uri in page.images:
            assert is_picture(uri)
        assert set(KEYS) <= page.ids
        assert not re.search(r"https?://|url\(|@import", html)
        assert "cubepy inspect cubepy.cli.demo.kernels:sobel" in html
        assert "$" not in re.sub(r"\$[\w.]", "", re.sub(r"<pre>.*?</pre>", "", html, flags=re.S))

    def test_page_escapes_names(self, run, tmp_path):
        run()
        html = (tmp_path / "report" / "demo.html").read_text(encoding="utf-8")
        assert "a &lt;b&gt; &amp; c.png" in html and "a <b>" not in html

    def test_lines_lead_to_python(self, run, tmp_path):
        run()
        html = (tmp_path / "report" / "demo.html").read_text(encoding="utf-8")
        for step in STEPS:
            section = html[html.index(f'<section id="{step.key}">') :].partition("</section>")[0]
            python, *stages = re.findall(r"<pre>(.*?)</pre>", section, re.S)
            lines = set(re.findall(r'data-l="(\d+)"', python))
            assert len(stages) == 3
            for stage in stages:
                assert set(re.findall(r'data-l="(\d+)"', stage)) & lines

    def test_wrong_results_end_with_1(self, run, monkeypatch):
        monkeypatch.setattr("cubepy.cli.demo.steps.kernels.stretch", broken_stretch())
        found = run()
        assert found.status == 1 and "wrong results" in found.out


def broken_stretch():
    from cubepy.cli.demo import kernels

    class Broken:
        function = kernels.stretch.function

        def over(self, out):
            return lambda x, out, low, gain: out.fill(2)

        def configure(self, **_):
            return self

    return Broken()


def is_picture(uri: str) -> bool:
    from PIL import Image

    head, _, data = uri.partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.load()
    return head == "data:image/jpeg;base64" and min(image.size) > 10


class TestPhotograph:
    def test_enlarges_to_multiples(self, photograph):
        found = picture.load_photograph(photograph, 0.1)
        assert found.planes.dtype == np.float32 and found.planes.flags.c_contiguous
        assert all(n % picture.MULTIPLE == 0 for n in found.planes.shape[1:])
        assert found.original == (160, 96) and "enlarged" in found.story

    def test_missing_file(self, cli, tmp_path):
        found = cli("demo", tmp_path / "none.png")
        assert found.status == 2 and "there is no file" in found.err

    def test_no_picture(self, cli, kernels):
        found = cli("demo", kernels)
        assert found.status == 2 and "no picture" in found.err

    def test_without_scikit_image(self, cli, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        found = cli("demo")
        assert found.status == 1 and "pip install 'cubepy-jit[demo]'" in found.err

    def test_without_pillow(self, monkeypatch, photograph):
        monkeypatch.setitem(__import__("sys").modules, "PIL", None)
        with pytest.raises(Failure, match="Pillow"):
            picture.load_photograph(photograph, 1)

    @pytest.mark.optional("skimage")
    def test_default(self):
        found = picture.load_photograph(None, 0.1)
        assert found.original == (512, 512) and "scikit-image" in found.story


def test_the_page_ships(monkeypatch):
    import tomllib
    from pathlib import Path

    root = Path(__file__).parents[2]
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, names in data["package-data"].items():
        for name in names if package != "*" else ():
            assert list((root / package.replace(".", "/")).glob(name)), name
    assert "report.html" in data["package-data"]["cubepy.cli.demo"]
