"""The ways in which ranks exchange keys, values and gradients."""
