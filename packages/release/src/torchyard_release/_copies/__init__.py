"""Copies of what train.toml declares, in the tree's other files: found, compared, derived."""
