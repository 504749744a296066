"""Programs: their text, vocabulary, types, and their evaluation."""
