"""What every layer stands on: threads, files, progress, memory, errors."""
