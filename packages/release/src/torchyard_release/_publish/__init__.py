"""Promotion, publishing and the release notes."""
