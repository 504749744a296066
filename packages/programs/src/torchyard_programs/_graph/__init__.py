"""Programs as graphs of typed operations on single elements, for a kernel's language."""
