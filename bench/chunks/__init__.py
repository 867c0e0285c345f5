"""These benchmarks measure the chunk stage and the codec."""
