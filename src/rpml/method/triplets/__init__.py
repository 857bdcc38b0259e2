"""Triplets from labels."""
