"""Results and the report made of them: digests, expected failures, JUnit XML."""
