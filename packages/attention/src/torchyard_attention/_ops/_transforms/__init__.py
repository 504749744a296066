"""Attention under torch.func, and its forward-mode, higher and batched derivatives."""
