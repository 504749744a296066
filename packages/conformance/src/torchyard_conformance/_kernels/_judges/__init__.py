"""What the laws of kernels compute, compare and refuse."""
