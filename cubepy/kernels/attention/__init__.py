"""Attention: `attention`."""
