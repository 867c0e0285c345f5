"""Writes the samples and series of history as Parquet files, for other tools."""
