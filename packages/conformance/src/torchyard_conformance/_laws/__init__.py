"""The laws: one folder per family, each law a test."""
