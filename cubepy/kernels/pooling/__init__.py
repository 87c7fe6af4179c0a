"""Pooling over windows."""
