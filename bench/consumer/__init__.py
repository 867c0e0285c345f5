"""These benchmarks measure the parallel consumer and the chain headers."""
