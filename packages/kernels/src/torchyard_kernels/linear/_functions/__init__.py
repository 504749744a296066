"""Pointwise functions that run before and after a product."""
