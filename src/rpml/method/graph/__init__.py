"""k nearest neighbors and the affinity graph."""
