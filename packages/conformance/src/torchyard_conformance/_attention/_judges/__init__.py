"""What the laws of attention compute, compare and refuse."""
