"""Prompts that begin alike: plain generate, and with keys and values that are reused."""
