"""Permutations of axes, carried out in memory."""
