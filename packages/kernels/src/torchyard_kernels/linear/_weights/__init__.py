"""Weights of linear layers in packed memory."""
