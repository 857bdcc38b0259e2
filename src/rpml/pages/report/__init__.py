"""Pictures and pages about a fitted model."""
