"""Export: history as Parquet files."""
