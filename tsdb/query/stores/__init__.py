"""The stores of a querier: local and remote, which of them answers what, and their samples."""
