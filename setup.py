"""The package list, read off the disk; everything else is in pyproject.toml.

An explicit list silently drops a new subpackage from the wheel, and `packages.find` needs the
symlinks inside cubepy/, which a Windows checkout may lack. Searching the three mapped folders
under their own names needs neither.
"""

from setuptools import find_packages, setup

MAPPED = ("compilers", "runtimes", "autotune")


def packages() -> list[str]:
    """Every package of the distribution, by its import name."""
    inside = find_packages(include=["cubepy", "cubepy.*"])
    beside = find_packages(include=[pattern for name in MAPPED for pattern in (name, f"{name}.*")])
    return sorted({*inside, *(f"cubepy.{name}" for name in beside)})


setup(packages=packages())
