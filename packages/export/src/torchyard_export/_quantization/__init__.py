"""Quantization of a model to int8 before it is exported, by torchao's PT2E flow."""
