"""Laws of kernels that are compiled ahead of time."""
