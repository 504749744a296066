"""Measuring a case: contestants, rounds, the machine's limits, probes in other processes."""
