"""Running a model to record it as a program."""
