"""Demonstrations: learn from unlabeled data, score on new classes."""
