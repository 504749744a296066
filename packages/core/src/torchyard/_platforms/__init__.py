"""Platforms: what is known of a machine, as data."""
