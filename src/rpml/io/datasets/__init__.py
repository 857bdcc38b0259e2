"""Image benchmarks and the data the demos ship."""
