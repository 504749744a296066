"""PyTorch's own tests of a device that is registered from outside, on a plugin's device."""
