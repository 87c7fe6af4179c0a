"""Passes: each makes a better kernel from a kernel; `pipeline` lists them."""
