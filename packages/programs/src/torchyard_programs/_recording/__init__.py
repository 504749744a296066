"""The recording of a Python function as a program."""
