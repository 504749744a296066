"""Bundles: a report as one signed file, its verification, and the page made of many."""
