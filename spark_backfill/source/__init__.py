"""The data source `tsdb` reads history, the log and the chunks topic as DataFrames."""
