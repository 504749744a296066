"""Programs: text and steps, vocabulary, type inference, and conversion to Python functions."""
