"""These benchmarks measure a store: replay, memory and reads."""
