"""Readers of image benchmarks, and the data of the demos."""
