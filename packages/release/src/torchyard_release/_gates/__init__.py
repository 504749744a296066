"""The checks that a candidate must pass, the environments that they run in, and the scorecard."""
