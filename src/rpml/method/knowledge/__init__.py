"""Supervision by the user: labels and constraints, and which rows to label next."""
