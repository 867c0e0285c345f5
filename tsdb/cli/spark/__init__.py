"""`tsdb spark` runs the jobs of spark_backfill from the command line."""
