"""Implementations of attention against one another on the device at hand."""
