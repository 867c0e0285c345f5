"""History: a store of rows for chunks that were loaded from the log, and for their series."""
