"""The shape budget and the few house rules that no linter knows.

Sizes are physical lines; a function counts from its `def` to its end without its docstring, so
that documenting costs nothing. Exceptions stand in style_allow.toml with a limit and a reason.
"""

import ast
import functools
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("cubepy", "compilers", "runtimes", "autotune")
EVERYTHING = (*PRODUCT, "tests", "bench", "examples")
GENERATED = ROOT / "tests" / "golden"

MODULE_LINES = 600
FUNCTION_LINES = 60
PRODUCT_P95 = 40
PRODUCT_MEDIAN = 10

SHAPELESS_NAMES = {"common", "helper", "helpers", "misc", "stuff", "util", "utils"}
SHAPELESS_FOLDERS = SHAPELESS_NAMES | {"core"}  # a module `core` can be the centre of its folder
READS_ENVIRONMENT = {"cubepy/config.py"}  # tests and bench may read it too
DOCUMENTED = ("cubepy/kernels", "cubepy/lang")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def modules(folders: tuple[str, ...] = EVERYTHING) -> tuple[str, ...]:
    """The Python files under `folders`, each once (the links in cubepy/ lead to known files)."""
    found = {path.resolve() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    kept = (path for path in found if not path.is_relative_to(GENERATED))
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in kept))


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), module)


def functions(module: str) -> Iterator[tuple[str, Function]]:
    """Each function of `module`, nested ones too, with its dotted name."""

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, Function | ast.ClassDef):
                inner = f"{prefix}{child.name}."
            if isinstance(child, Function):
                yield inner[:-1], child
            if not isinstance(child, ast.expr):  # they hold no definitions
                yield from visit(child, inner)

    return visit(tree(module), "")


def is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def span(node: Function | ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def function_size(node: Function) -> int:
    return span(node) - (span(node.body[0]) if is_docstring(node.body[0]) else 0)


def module_sizes() -> dict[str, int]:
    return {m: len((ROOT / m).read_text(encoding="utf-8").splitlines()) for m in modules()}


@functools.cache
def function_sizes(folders: tuple[str, ...] = EVERYTHING) -> dict[str, int]:
    return {
        f"{module}:{name}": function_size(node)
        for module in modules(folders)
        for name, node in functions(module)
    }


@functools.cache
def allowed() -> dict[str, dict[str, dict]]:
    return tomllib.loads((ROOT / "tests" / "style_allow.toml").read_text())


@pytest.mark.parametrize(
    ("kind", "sizes", "limit"),
    [("modules", module_sizes, MODULE_LINES), ("functions", function_sizes, FUNCTION_LINES)],
)
class TestSize:
    def test_is_within_the_limit(self, kind, sizes, limit):
        limits = {name: entry["limit"] for name, entry in allowed()[kind].items()}
        over = {k: n for k, n in sizes().items() if n > limits.get(k, limit)}
        assert not over, f"{kind} over their limit of lines: {over}"

    def test_exceptions_are_needed_and_explained(self, kind, sizes, limit):
        measured = sizes()
        for name, entry in allowed()[kind].items():
            assert entry["reason"], name
            assert measured.get(name, 0) > limit, f"{name} needs no exception any more"


def test_shape_of_the_product():
    sizes = sorted(function_sizes(PRODUCT).values())
    if len(sizes) < 20:
        pytest.skip("too few functions for percentiles")
    p95, median = statistics.quantiles(sizes, n=20)[-1], statistics.median(sizes)
    assert p95 <= PRODUCT_P95, f"the 95th percentile of function lengths is {p95}"
    assert median <= PRODUCT_MEDIAN, f"the median function has {median} lines"


def test_names_say_what_is_inside():
    paths = [Path(module) for module in modules()]
    bad = [p for p in paths if p.stem in SHAPELESS_NAMES or SHAPELESS_FOLDERS & set(p.parent.parts)]
    assert not bad, "name the idea that the file or folder holds"


def is_literal(node: ast.expr | None) -> bool:
    try:
        ast.literal_eval(node)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def is_declaration(node: ast.stmt) -> bool:
    """Imports, docstrings, literal tables and a lazy `__getattr__`: what an __init__ may hold."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return is_literal(value)
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING"), body=body, orelse=[]):
            return all(map(is_declaration, body))
    return is_docstring(node)


def test_packages_hold_no_logic():
    bad = [
        f"{module}:{node.lineno}"
        for module in modules(PRODUCT)
        if module.endswith("__init__.py")
        for node in tree(module).body
        if not is_declaration(node)
    ]
    assert not bad, "an __init__.py imports, documents and lists names; nothing else"


def reads_environment(node: ast.AST) -> bool:
    names = {"environ", "environb", "getenv"}
    match node:
        case ast.Attribute(value=ast.Name("os"), attr=attr):
            return attr in names
        case ast.ImportFrom(module="os", names=aliases):
            return any(alias.name in names for alias in aliases)
    return False


def test_the_environment_is_read_in_one_place():
    bad = [
        f"{module}:{getattr(node, 'lineno', '?')}"
        for module in modules(PRODUCT)
        if module not in READS_ENVIRONMENT
        for node in ast.walk(tree(module))
        if reads_environment(node)
    ]
    assert not bad, "settings live in the table of cubepy/config.py"


def is_overload(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(each).endswith("overload") for each in decorators)


def test_public_functions_are_documented():
    bare = [
        f"{module}:{node.name}"
        for module in modules(PRODUCT)
        if module.startswith(DOCUMENTED)
        for node in tree(module).body
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
        if not is_overload(node) and not ast.get_docstring(node)
    ]
    assert not bare, "say the effect in a sentence, then shapes, types, rounding and errors"
