"""Whole models of transformers, beside their own attention."""
