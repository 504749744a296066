"""Attention over keys and values in the pages of a cache."""
