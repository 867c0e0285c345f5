"""The topics that history is loaded from, as Parquet files for whoever reads those."""
