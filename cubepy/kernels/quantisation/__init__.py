"""Numbers of few bits with scales."""
