"""The sizes into which native kernels divide their work: defaults, measurement, and their file."""
