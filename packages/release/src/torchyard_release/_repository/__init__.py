"""The repository whose packages are released, and its git."""
