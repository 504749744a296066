"""A gated layer whose gate and up projections are one product."""
