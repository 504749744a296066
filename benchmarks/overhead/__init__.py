"""The time around a kernel."""
