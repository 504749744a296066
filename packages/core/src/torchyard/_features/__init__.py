"""Features: how far each has come on each device."""
