"""Programs of functions, reused where a function is known to do the same."""
