"""The stores of a querier: local and remote ones, routing between them, and their samples."""
