"""The first k of each row."""
