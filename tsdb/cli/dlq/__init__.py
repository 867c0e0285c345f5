"""`tsdb dlq` shows the dead letters and the progress of a parallel consumer."""
