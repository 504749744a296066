"""The formats of packed weights."""
