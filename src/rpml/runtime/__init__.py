"""Shared infrastructure: threads, files, progress, memory and errors."""
