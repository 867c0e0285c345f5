"""`tsdb dlq`: the dead letters and the progress of a parallel consumer."""
