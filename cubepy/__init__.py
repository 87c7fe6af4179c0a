"""CubePy: a kernel language and JIT compiler in Python.

A kernel is written once as a decorated Python function and runs at the speed of the hardware::

    @cp.cube
    def add(x, y, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] + y.flat[i]

    add.over(out)(x, y, out)
"""

from typing import TYPE_CHECKING, Any

from cubepy import started  # noqa: F401  # which reads the file of the program now

if TYPE_CHECKING:
    from cubepy.api import *  # noqa: F403
    from cubepy.autotune.autotuned import autotuned as autotuned
    from cubepy.jit.ir_kernel import from_ir as from_ir
    from cubepy.lang import atomic as atomic
    from cubepy.lang import cmma as cmma
    from cubepy.lang import pipelines as pipelines

_LATE = {
    "atomic": "cubepy.lang.atomic",
    "autotuned": "cubepy.autotune.autotuned",
    "cmma": "cubepy.lang.cmma",
    "from_ir": "cubepy.jit.ir_kernel",
    "kernels": "cubepy.kernels",
    "pipelines": "cubepy.lang.pipelines",
}
"""Public names that are loaded apart from the others: where they are, as a module or in one."""
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The public names, loaded on first use: `cubepy --help` and plain imports stay instant."""
    from importlib import import_module

    if name in _LATE:
        module = import_module(_LATE[name])
        return globals().setdefault(name, vars(module).get(name, module))
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'cubepy' has no attribute {name!r}")
    found = {k: v for k, v in vars(import_module("cubepy.api")).items() if not k.startswith("_")}
    for key, value in found.items():
        globals().setdefault(key, value)
    if name == "__all__":
        return sorted({*found, *_LATE} - {"kernels"})
    if name not in found:
        raise import_module("cubepy.frontend.suggest").no_attribute(name, found)
    return found[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), *_LATE})
