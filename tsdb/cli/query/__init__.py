"""`tsdb query` evaluates PromQL, or reads samples of matching series."""
