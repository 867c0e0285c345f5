"""Reads of the data source `tsdb`: history, the log and the chunks topic as DataFrames."""
