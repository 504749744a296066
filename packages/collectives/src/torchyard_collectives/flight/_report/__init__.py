"""The verdict as text, JSON and HTML."""
