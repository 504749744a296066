"""The repository that a train is made of, and its git."""
