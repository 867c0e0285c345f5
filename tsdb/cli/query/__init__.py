"""`tsdb query`: PromQL, and samples of matching series."""
