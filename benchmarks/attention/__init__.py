"""Suites of attention, and of attention over many ranks."""
