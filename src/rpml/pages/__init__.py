"""The report, the explorer and the figures."""
