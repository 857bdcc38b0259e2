"""k nearest neighbours and the affinity graph."""
