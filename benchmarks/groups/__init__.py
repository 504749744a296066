"""Suites of collectives."""
