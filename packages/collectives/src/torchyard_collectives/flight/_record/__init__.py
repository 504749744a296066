"""Recording the calls of this process."""
