"""Legalisation: kernels in what a target has; `pipeline` lists the steps."""
