"""Contracts, requests, and the implementations of them that plugins offer."""
