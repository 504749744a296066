"""Pointwise programs: from the text of a recorded function to the steps that native code runs."""
