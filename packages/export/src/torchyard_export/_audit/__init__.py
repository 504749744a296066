"""Checks of the model and of the program that was recorded."""
