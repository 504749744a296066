"""The registry: which implementation computes a request, and why."""
