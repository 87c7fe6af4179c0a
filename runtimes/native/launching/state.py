"""Words that native launches write for each compiled form of a kernel."""

IS_USED = 0
IS_LONG = 1
"""Launches without the GIL until it is tried again whether the kernel is short."""
WORDS = 2
LONG_NS = 50_000
"""A kernel that takes longer is launched without the GIL."""
LONG_LAUNCHES = 64
