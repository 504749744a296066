"""The checks of attention's laws, by subject."""
