"""The demonstrations: learn from data nobody labeled, score on classes never seen."""
