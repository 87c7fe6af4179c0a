"""The native executor of launch plans."""
