"""The decorator, launches and inspection: from calls with real arguments to compiled kernels."""
