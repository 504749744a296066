"""The plugin that is certified, and fresh interpreters in which laws look at it."""
