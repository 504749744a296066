"""Attention under torch.func, and differentiated forwards, twice or for many slopes at once."""
