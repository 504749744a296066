"""Results are within rounding of the reference, for any values in the inputs."""
