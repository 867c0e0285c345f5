"""History: chunks that have left the log for a store of rows, and the series that they are of."""
