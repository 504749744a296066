"""Writing what was recorded to files, and reading it back."""
