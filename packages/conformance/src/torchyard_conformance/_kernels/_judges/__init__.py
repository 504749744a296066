"""The checks of the kernels' laws, by subject."""
