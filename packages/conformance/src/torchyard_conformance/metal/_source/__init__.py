"""Metal source: its tokens, the kernels that it has, and the C++ that it becomes."""
