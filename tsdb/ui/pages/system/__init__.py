"""Pages about the system: partitions, the pipeline to history, cardinality, queries, settings."""
