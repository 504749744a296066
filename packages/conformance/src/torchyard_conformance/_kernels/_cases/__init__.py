"""Requests and inputs of each contract of torchyard-kernels."""
