"""Compiled artifacts that travel safely, and tensors that are not computed twice."""
