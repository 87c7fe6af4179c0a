"""Scans: cumulative sums and products."""
