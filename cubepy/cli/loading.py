"""From `FILE.py:KERNEL` or `package.module:KERNEL` to the object; the file is imported, not run."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from cubepy.cli.failures import Failure, closest, misuse


def load(reference: str) -> tuple[ModuleType, str, Any]:
    """The module, the name and the object behind a reference; `Failure` where there is none."""
    source, colon, name = reference.rpartition(":")
    if not colon or not source:
        source, name = reference, ""
    module = _load_module(source)
    if not name:
        raise misuse(f"`{reference}` names no kernel", _kernels_text(module, source))
    return module, name, _attribute(module, source, name)


def _load_module(source: str) -> ModuleType:
    path = Path(source)
    try:
        if source.endswith(".py") or path.is_file():
            return _from_file(path)
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(source)
    except Failure:
        raise
    except ModuleNotFoundError as error:
        if error.name and (source == error.name or source.startswith(f"{error.name}.")):
            raise misuse(
                f"there is no module `{source}`", "write FILE.py:KERNEL or package.module:KERNEL"
            ) from None
        raise _import_failure(source, error) from None
    except Exception as error:
        raise _import_failure(source, error) from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise misuse(f"there is no file `{path}`", closest(path.name, beside))
    path = path.resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise misuse(f"`{path}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _import_failure(source: str, error: Exception) -> Failure:
    """What an import raised, with the user's line."""
    where = ""
    if not isinstance(error, SyntaxError):
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename[0] != "<"]
        last = frames[-1] if frames else None
        where = f" ({Path(last.filename).name}:{last.lineno})" if last else ""
    return Failure(f"importing `{source}` failed{where}: {type(error).__name__}: {error}")


def _attribute(module: ModuleType, source: str, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            suggestion = closest(name, kernels_of(module)) or _kernels_text(module, source)
            raise misuse(f"`{source}` has no kernel `{name}`", suggestion) from None
    return found


def kernels_of(module: ModuleType) -> list[str]:
    """The names of a module's kernels: cube functions, or what a package of functions lists."""
    from cubepy.lang.function import CubeFunction

    found = [name for name, value in vars(module).items() if isinstance(value, CubeFunction)]
    listed = getattr(module, "__all__", ())
    return sorted({*found, *listed}) if found or listed else _functions_of(module)


def _functions_of(module: ModuleType) -> list[str]:
    return sorted(
        name for name, value in vars(module).items() if callable(value) and not name.startswith("_")
    )


def _kernels_text(module: ModuleType, source: str) -> str:
    names = kernels_of(module)
    return f"kernels in `{source}`: {', '.join(names)}" if names else "it holds no kernels"
