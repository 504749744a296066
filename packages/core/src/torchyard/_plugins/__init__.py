"""Plugins: found, read, checked, and their code called."""
