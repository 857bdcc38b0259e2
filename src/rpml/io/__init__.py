"""Feature files, data sets, model files, checkpoints and exports."""
