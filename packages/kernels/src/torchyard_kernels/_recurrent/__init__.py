"""Recurrent layers: what users call, the ops, and the implementations in torch."""
