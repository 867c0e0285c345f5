"""Export: write history as Parquet files."""
