"""Sorting: whole rows, and the first elements of rows."""
