"""A language model end to end, beside other runtimes."""
