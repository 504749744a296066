"""Attention within each of several packed sequences."""
