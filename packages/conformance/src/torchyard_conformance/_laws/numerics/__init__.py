"""Results are right to the last bits that rounding leaves, whatever else the inputs hold."""
