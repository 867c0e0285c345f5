"""These benchmarks measure history: its size, its reads and the loader."""
