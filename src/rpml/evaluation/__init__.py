"""Metrics, baselines, comparison, recommendation and the paper's protocol."""
