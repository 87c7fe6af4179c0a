"""Scripts that run in processes of their own; each prints one number."""
