"""Products of matrices: `matmul`."""
