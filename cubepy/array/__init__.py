"""Arrays: the memory of what others made, and arrays of CubePy's own on every device."""
