"""Checks of arguments, and the types that they become."""
