"""Execution graphs: capture once, replay without Python between the operators."""
