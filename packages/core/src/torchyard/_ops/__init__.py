"""Ops registered with torch: their overloads, derivatives and transforms. Needs torch."""
