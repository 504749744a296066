"""Attention over parts of the keys: its gradients, and how results are put together."""
