"""The stores of a querier: has local and remote ones, routes between them, and reads their samples."""
