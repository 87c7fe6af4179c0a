"""Compiled code on disk: what was traced and compiled once is found by later processes."""
